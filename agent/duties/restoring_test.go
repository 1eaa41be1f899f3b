package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// planner replaces the backup store.
type planner struct {
	plan atomic.Pointer[func(context.Context, leases.RestoreTarget) (leases.RestorePlan, error)]
	// looks of the duties, calls that were made, and the lineage of the last one.
	looks   atomic.Int32
	calls   atomic.Int32
	lineage atomic.Pointer[string]
	// phase of the record that the duties read last.
	phase atomic.Pointer[leases.Phase]
}

func (p *planner) is(plan func(context.Context, leases.RestoreTarget) (leases.RestorePlan, error)) {
	p.plan.Store(&plan)
}

func (p *planner) call(ctx context.Context, target leases.RestoreTarget, lineage string) (leases.RestorePlan, error) {
	p.calls.Add(1)
	p.lineage.Store(&lineage)
	return (*p.plan.Load())(ctx, target)
}

// plans runs the duties of the leader's agent, whose Pod has this UID, with short pauses.
func (d *drainCluster) plans(pod string, p *planner) {
	d.t.Helper()
	leader := d.mustLead()
	server := d.members[leader].Server
	self := Cluster{ClusterID: uint64(server.Cluster().ID()), MemberID: uint64(server.MemberID()), Member: leader, PodUID: pod}
	duties := New(Options{
		Store: d.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: d.endpoint(leader),
		Self: func() (Cluster, bool) { p.looks.Add(1); return self, true }, PeerURL: d.peerURL,
		Decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plans_total", Help: "Decisions."}, []string{"table", "rule"}),
		Grace:     func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler), PlanRestore: p.call,
		Complete: func(r leases.Record) (leases.Record, bool) { p.phase.Store(&r.Phase); return r, false },
	})
	duties.poll, duties.planTimeout = 100*time.Millisecond, time.Second
	duties.planRest = loop.Backoff{First: 10 * time.Millisecond, Last: 10 * time.Millisecond}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	go func() { done <- duties.Run(ctx) }()
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("duties: %v", err)
		}
	})
}

// requests writes a request on the record as druid does.
func (d *drainCluster) requests(r leases.RestoreRequest) {
	d.t.Helper()
	d.eventually("the request is written", func() error {
		_, version, err := d.store.Record(d.t.Context())
		if err != nil {
			return err
		}
		return d.store.RequestRestorePlan(d.t.Context(), version, r)
	})
}

// planned waits for a plan that check accepts.
func (d *drainCluster) planned(what string, check func(leases.RestorePlan) bool) leases.Version {
	d.t.Helper()
	var at leases.Version
	d.eventually(what, func() error {
		record, version, err := d.store.Record(d.t.Context())
		if at = version; err == nil && !check(record.Restore.Plan) {
			err = fmt.Errorf("the plan is %+v", record.Restore.Plan)
		}
		return err
	})
	return at
}

// waits returns after so many more looks or calls.
func (d *drainCluster) waits(count *atomic.Int32, more int32) {
	d.t.Helper()
	until := count.Load() + more
	d.eventually("the agent goes on", func() error {
		if n := count.Load(); n < until {
			return fmt.Errorf("%d times, want %d", n, until)
		}
		return nil
	})
}

func TestARequestForARestoreIsAnswered(t *testing.T) {
	d := newDrainCluster(t)
	d.edit(func(r *leases.Record) { r.Lineage = "00000001-aa" })
	p := &planner{}
	p.is(func(context.Context, leases.RestoreTarget) (leases.RestorePlan, error) {
		return leases.RestorePlan{}, errors.New("the store is away")
	})
	d.plans(podUID(d.mustLead()), p)
	if d.waits(&p.looks, 5); p.calls.Load() != 0 {
		t.Fatal("a plan was made without a request")
	}

	// An error is written once, and the agent tries again.
	d.requests(leases.RestoreRequest{Nonce: "first", Target: leases.RestoreTarget{Revision: 7}})
	written := d.planned("the error", func(p leases.RestorePlan) bool {
		return p.Nonce == "first" && p.Error == "the store is away" && !p.At.IsZero()
	})
	d.waits(&p.calls, 3)
	if _, version, err := d.store.Record(t.Context()); err != nil || version != written {
		t.Errorf("the record was written again for the same error: version %s, was %s, %v", version, written, err)
	}

	// A plan is final.
	p.is(func(_ context.Context, target leases.RestoreTarget) (leases.RestorePlan, error) {
		return leases.RestorePlan{Lineage: "00000001-aa", Full: "full", Deltas: 2, Revision: target.Revision, Notes: []string{"a note"}}, nil
	})
	d.planned("the plan", func(p leases.RestorePlan) bool {
		return p.Final() && p.Nonce == "first" && p.Revision == 7 && p.Deltas == 2 && len(p.Notes) == 1 && !p.At.IsZero()
	})
	if lineage := *p.lineage.Load(); lineage != "00000001-aa" {
		t.Errorf("planned for the record's lineage %q", lineage)
	}
	before := p.calls.Load()
	if d.waits(&p.looks, 5); p.calls.Load() != before {
		t.Error("a final plan was made again")
	}

	// A store that ignores the end of its context does not block later requests.
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	p.is(func(context.Context, leases.RestoreTarget) (leases.RestorePlan, error) {
		<-hangs
		return leases.RestorePlan{}, nil
	})
	d.requests(leases.RestoreRequest{Nonce: "second"})
	d.planned("the error of a store that hangs", func(p leases.RestorePlan) bool {
		return p.Nonce == "second" && strings.Contains(p.Error, "does not respond within 1s")
	})
	p.is(func(context.Context, leases.RestoreTarget) (leases.RestorePlan, error) {
		return leases.RestorePlan{Lineage: "00000001-aa", Full: "full", Revision: 9}, nil
	})
	d.planned("the plan after the store hung", func(p leases.RestorePlan) bool { return p.Final() && p.Nonce == "second" && p.Revision == 9 })
}

// TestUnauthorizedAgentPlansNoRestore: an agent without authority plans no restore.
// An agent whose Pod was replaced answers nothing, and neither does one while an order stands.
func TestUnauthorizedAgentPlansNoRestore(t *testing.T) {
	d := newDrainCluster(t)
	p := &planner{}
	p.is(func(context.Context, leases.RestoreTarget) (leases.RestorePlan, error) {
		return leases.RestorePlan{Lineage: "00000001-aa", Full: "full", Revision: 9}, nil
	})
	d.plans("another Pod", p)
	d.requests(leases.RestoreRequest{Nonce: "first"})
	d.waits(&p.calls, 3)
	if record, _, err := d.store.Record(t.Context()); err != nil || record.Restore.Plan.Nonce != "" {
		t.Errorf("answered %+v, %v", record.Restore.Plan, err)
	}
	d.edit(func(r *leases.Record) {
		r.Phase, r.Recovery = leases.PhaseRecovering, &leases.Recovery{Epoch: 2, Nonce: "aa", Stage: leases.StagePrepare, Mode: leases.RecoverSurvivor, Chosen: "x"}
	})
	d.eventually("the duties read the order", func() error {
		if phase := *p.phase.Load(); phase != leases.PhaseRecovering {
			return fmt.Errorf("they read phase %s", phase)
		}
		return nil
	})
	before := p.calls.Load()
	if d.waits(&p.looks, 5); p.calls.Load() != before {
		t.Error("a plan was made while an order stands")
	}
}
