package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// Step is a thing that happened, and when, counted from the start of the timeline.
type Step struct {
	Name string
	At   time.Duration
}

// Timeline watches the objects of a namespace and notes when the cluster in it reaches each step of its formation. The
// times are those at which a watcher hears of it: a watch event takes milliseconds, a timestamp in a status has seconds.
type Timeline struct {
	begun    time.Time
	replicas int

	mu    sync.Mutex
	pods  map[string]*corev1.Pod
	held  map[string]leases.Role
	steps []Step
}

// WatchFormation starts a timeline; stop ends it and returns what happened, in order.
func (r *Rig) WatchFormation(t testing.TB, namespace string, replicas int) (stop func() []Step) {
	t.Helper()
	tl := &Timeline{
		begun: time.Now(), replicas: replicas,
		pods: map[string]*corev1.Pod{}, held: map[string]leases.Role{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	for _, list := range []client.ObjectList{&corev1.PodList{}, &coordinationv1.LeaseList{}} {
		w, err := r.watcher.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			t.Fatalf("watch %T in %s: %v", list, namespace, err)
		}
		group.Go(func() error { tl.follow(w); return nil })
	}
	tl.begun = time.Now()
	return func() []Step {
		cancel()
		_ = group.Wait() // follow returns no error
		return tl.steps
	}
}

func (tl *Timeline) follow(w watch.Interface) {
	for event := range w.ResultChan() {
		tl.mu.Lock()
		switch object := event.Object.(type) {
		case *corev1.Pod:
			tl.pods[object.Name] = object
			tl.podSteps()
		case *coordinationv1.Lease:
			tl.leaseSteps(object)
		}
		tl.mu.Unlock()
	}
}

// mark notes a step the first time that it is reached.
func (tl *Timeline) mark(name string, reached bool) {
	if reached && !slices.ContainsFunc(tl.steps, func(s Step) bool { return s.Name == name }) {
		tl.steps = append(tl.steps, Step{name, time.Since(tl.begun)})
	}
}

func (tl *Timeline) podSteps() {
	tl.mark("all Pods created", len(tl.pods) == tl.replicas)
	tl.mark("all Pods scheduled", tl.all(func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }))
	tl.mark("agents installed", tl.all(func(p *corev1.Pod) bool {
		return has(p, "install", func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil })
	}))
	tl.mark("agents run", tl.all(func(p *corev1.Pod) bool { return has(p, ContainerAgent, running) }))
	tl.mark("etcd containers run", tl.all(func(p *corev1.Pod) bool { return has(p, ContainerEtcd, running) }))
	tl.mark("etcd containers ready", tl.all(func(p *corev1.Pod) bool {
		return has(p, ContainerEtcd, func(s corev1.ContainerStatus) bool { return s.Ready })
	}))
}

func (tl *Timeline) all(is func(*corev1.Pod) bool) bool {
	n := 0
	for _, p := range tl.pods {
		if is(p) {
			n++
		}
	}
	return n == tl.replicas
}

func has(p *corev1.Pod, container string, is func(corev1.ContainerStatus) bool) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool { return s.Name == container && is(s) })
}

func running(s corev1.ContainerStatus) bool { return s.State.Running != nil }

func (tl *Timeline) leaseSteps(l *coordinationv1.Lease) {
	if strings.HasSuffix(l.Name, "-cluster") {
		record, err := leases.DecodeRecord(l)
		tl.mark("names drawn and recorded", err == nil && len(record.Members) > 0)
		tl.mark("seed claimed the bootstrap", err == nil && record.ClusterID != 0)
		tl.mark("raft group formed", err == nil && record.Phase == leases.PhaseFormed)
		return
	}
	member, err := leases.DecodeMember(l)
	if err != nil || member.ID == 0 {
		return
	}
	tl.held[l.Name] = member.Role
	voters := 0
	for _, role := range tl.held {
		if role != leases.RoleLearner {
			voters++
		}
	}
	tl.mark("first learner in its Lease", member.Role == leases.RoleLearner)
	tl.mark(fmt.Sprintf("%d voters in their Leases", tl.replicas), voters == tl.replicas)
}
