package druid

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/leases"
)

const (
	// lingerPatience with what lost its counterpart. A Pod gets its node and its image in less, and what is on its way out
	// is gone by then.
	lingerPatience = time.Minute
	// nodePatience with a node that is not reachable before a person is asked: most that reboot are back by then.
	nodePatience = 2 * time.Minute
	// nodeInterval between two looks at a node that is not reachable: druid does not watch nodes.
	nodeInterval = 30 * time.Second
	// settlePatience with a member that became ready before another one's Pod is replaced: clients come back to it, and one
	// that cannot bear them ends within moments.
	settlePatience = 10 * time.Second
)

// observeHealing finds the members that do not get on their feet by themselves, by druid's own clock: one that just started
// has seen nothing yet.
func (r *Reconciler) observeHealing(ctx context.Context, o *observation) error {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Lingers = r.patient(o, *m, "is no member", !m.Listed, lingerPatience); !m.Listed {
			continue
		}
		if err := r.observeSilent(ctx, o, m); err != nil {
			return err
		}
		m.Blocked = blocked(o.pods[m.Name])
		r.observeStuck(o, m)
		comes := m.Pod&(plan.PodLive|plan.PodTerminating) != 0 // also on a node that is away: it may be the one that joins
		m.Lingers = r.patient(o, *m, "is not coming", !comes, lingerPatience)
		if err := r.observeNode(ctx, o, m); err != nil {
			return err
		}
	}
	return nil
}

// observeStuck watches a member that is not up. The clock starts again with each Pod, when a Pod is deleted, and whenever a
// learner gets on.
func (r *Reconciler) observeStuck(o *observation, m *plan.Member) {
	up := m.Pod == plan.PodLive && m.EtcdReady && !m.NodeLost
	learner := m.Readable && m.Says.Role == leases.RoleLearner
	progress := fmt.Sprintf("%s %t", m.PodUID, m.Pod == plan.PodTerminating)
	if learner {
		progress += " " + m.Says.Raft.String()
	}
	restarts := m.Says.Healing.Restarts
	if m.Says.Healing.PodUID == m.PodUID && restarts > 0 {
		restarts-- // the last one is announced, and this is the Pod that it is to delete
	}
	patience := plan.Patience(r.grace, restarts)
	wellKept := learner && m.Liveness == leases.Live // its etcd is healthy, and waits for its vote
	m.Stuck = r.still(o, *m, "down", progress, !up && !wellKept, patience)
	marked := m.Readable && m.Says.PodUID == m.PodUID // so it is this Pod's agent that renews
	m.Settled = r.still(o, *m, "settling", m.PodUID, up && !learner && marked && m.Liveness == leases.Live, settlePatience)
	if m.Says.Healing != (leases.Healing{}) {
		m.Steady = r.still(o, *m, "up", m.PodUID, up && !learner, patience)
	}
}

// still is patient with what holds only as long as value stays the same.
func (r *Reconciler) still(o *observation, m plan.Member, what, value string, holds bool, patience time.Duration) bool {
	f := fact{o.cluster.UID, m.Name + " " + what}
	r.memory.note(f, value)
	lasts, left := r.memory.lasts(f, holds, patience, r.now())
	o.lookAgain(left)
	return lasts
}

// blocked says whether a container of the Pod waits for its image or its configuration: the kubelet goes on trying, and a
// new Pod would wait for the same.
func blocked(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(containerStatuses(pod), func(s corev1.ContainerStatus) bool {
		waiting := s.State.Waiting
		return waiting != nil && (slices.Contains(cannotPull, waiting.Reason) || waiting.Reason == "CreateContainerConfigError")
	})
}
