package start

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// watchInterval is how often the agent asks its etcd for a linearizable read and for its raft term, and then, without an
// answer or in a new term, the API server for the record.
const watchInterval = 5 * time.Second

// watchMisses is how many reads in a row fail before etcd counts as without a quorum. One can fail during an election.
const watchMisses = 2

// Calls is what the cluster record requests of a member whose etcd runs.
type Calls uint8

// The requests.
const (
	CallsNothing Calls = 1 << iota
	CallsOrder         // a recovery order stands that is later than the data
	CallsRestore       // an order to restore in place stands that is later than the data
	CallsLater         // a later raft group was formed
	CallsUnknown       // the record cannot be read
)

func (c Calls) String() string {
	return rules.Word(c, "nothing", "recovery order", "order to restore", "later raft group", "unknown")
}

// RunFacts is the complete input of runRules.
type RunFacts struct {
	// Serves is unknown after one read that failed.
	Serves rules.Answer `fact:"etcd answers linearizable reads"`
	Calls  Calls        `fact:"cluster record names"`
}

// RunVerdict says whether a running etcd is stopped.
type RunVerdict string

// The verdicts.
const (
	KeepRunning RunVerdict = "Keep"
	StopEtcd    RunVerdict = "Stop"
)

// runRules decide about an etcd that runs. The first match wins.
var runRules = rules.New(KeepRunning, []rules.Row[RunFacts, RunVerdict]{
	{Name: "formed-again", When: RunFacts{Calls: CallsLater}, Verdict: StopEtcd,
		Why: "the cluster was formed again without this member, also if its old raft group has a quorum"},
	{Name: "restore-stops", When: RunFacts{Calls: CallsRestore}, Verdict: StopEtcd,
		Why: "the cluster is restored from a backup, also if a quorum serves"},
	{Name: "serves", When: RunFacts{Serves: rules.Yes}, Verdict: KeepRunning,
		Why: "a quorum serves, and no order ends it"},
	{Name: "one-read-failed", When: RunFacts{Serves: rules.Unknown}, Verdict: KeepRunning,
		Why: "one read can fail during an election"},
	{Name: "order-stops", When: RunFacts{Calls: CallsOrder}, Verdict: StopEtcd,
		Why: "a recovery order is in effect, and etcd has no quorum"},
	{Name: "waits-for-quorum", When: RunFacts{Calls: CallsNothing | CallsUnknown}, Verdict: KeepRunning,
		Why: "the members can be a quorum again"},
})

// callsOf compares the record with the identity of the data on which etcd runs.
func callsOf(r recordState, identityFile datadir.IdentityFile) Calls {
	switch order := r.record.Order(); {
	case r.err != nil:
		return CallsUnknown
	case order != nil && order.Epoch > identityFile.Epoch && order.Restores():
		return CallsRestore
	case order != nil && order.Epoch > identityFile.Epoch:
		return CallsOrder
	case r.record.Phase == leases.PhaseFormed && r.record.FormedEpoch > identityFile.Epoch && r.record.ClusterID != uint64(identityFile.ClusterID):
		return CallsLater
	default:
		return CallsNothing
	}
}

// WatchOrders follows a running etcd, and stops it if the record calls for that. It reads the record if a read of etcd failed, in
// each new raft term, while the record has an order, if the leader's duties read of what ends an etcd that serves, and if the Lease of
// the member is renewed again after a failure. The term changes when the leader was stopped. So the others need not wait for the loss of
// the quorum. ctx must end when etcd does. stop must stop etcd.
func (b *Bootstrapper) WatchOrders(ctx context.Context, stop func(ctx context.Context, reason string) error) error {
	for w := (watched{}); ; {
		look, again := b.nextLook(ctx)
		if !again {
			return nil
		}
		serves, news := w.add(b.ownQuorum(ctx))
		if look == lookDue && !news {
			continue
		}
		idle, err := b.follow(ctx, serves, stop)
		if err != nil {
			return err
		}
		if !idle {
			w.term = 0 // the next look reads the record again
		}
	}
}

// watched is what the looks at the own etcd found so far.
type watched struct {
	// misses is how many reads failed in a row, and term the raft term in which the record was read last.
	misses int
	term   uint64
}

// add adds a look: whether etcd answered a linearizable read, and its raft term, 0 for unknown. It returns whether etcd has a quorum,
// and whether the record must be read.
func (w *watched) add(answers bool, term uint64) (serves rules.Answer, news bool) {
	if term != 0 && term != w.term {
		w.term, news = term, true
	}
	if answers {
		w.misses = 0
		return rules.Yes, news
	}
	if w.misses++; w.misses < watchMisses {
		return rules.Unknown, true
	}
	return rules.No, true
}

// looks are the reasons to look at the own etcd.
type looks uint8

const (
	lookDue   looks = iota // the interval is over
	lookLater              // the record may have a later raft group or an order to restore, see Bootstrapper.later
)

// nextLook waits until a look is due. It returns false if ctx ended.
func (b *Bootstrapper) nextLook(ctx context.Context) (looks, bool) {
	timer := time.NewTimer(watchInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return lookDue, false
	case <-b.later:
		return lookLater, true
	case <-timer.C:
		return lookDue, true
	}
}

// follow reads the record, and stops etcd if the record calls for that. It returns whether the record calls for nothing. An order that
// stands can be followed by another raft group, also while etcd serves.
func (b *Bootstrapper) follow(ctx context.Context, serves rules.Answer, stop func(ctx context.Context, reason string) error) (idle bool, err error) {
	identityFile, known := b.Identity()
	if !known {
		return false, nil
	}
	var r recordState
	reading, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	r.record, r.version, r.err = b.store.Record(reading)
	cancel()
	calls := callsOf(r, identityFile)
	d := runRules.Decide(RunFacts{Serves: serves, Calls: calls})
	if d.Verdict == StopEtcd && ctx.Err() == nil {
		b.log.InfoContext(ctx, "etcd stopped for a recovery", "rule", d.Rule)
		b.metrics.WithLabelValues(runTable, d.Rule).Inc()
		return true, stop(ctx, d.Why)
	}
	return calls == CallsNothing, nil
}

// Renewed receives the result of each renewal of the member Lease. The first success after a failure asks for a read of the record: while
// the API server was unreachable, the cluster can have been formed again without this member. An etcd with a quorum does not read the
// record itself while its raft term lasts, and the agent of its leader can still be cut off.
func (b *Bootstrapper) Renewed(err error) {
	failed := b.unrenewed
	if b.unrenewed = err != nil; failed && err == nil {
		b.lookAtRecord()
	}
}

// compareGroup compares a record that the leader's duties read with the data on which etcd runs. An etcd with a quorum does not
// read the record itself while its raft term lasts.
func (b *Bootstrapper) compareGroup(record leases.Record, identityFile datadir.IdentityFile) {
	if callsOf(recordState{record: record}, identityFile)&(CallsLater|CallsRestore) == 0 {
		return
	}
	b.lookAtRecord()
}

// lookAtRecord asks WatchOrders for a read of the record.
func (b *Bootstrapper) lookAtRecord() {
	select {
	case b.later <- struct{}{}:
	default: // one look is enough
	}
}

// runTable is the name of the table in the metric of all decisions.
const runTable = "agent/start.runRules"

// ownQuorum says whether the own etcd answers a linearizable read, and in which raft term it is, 0 for unknown.
func (b *Bootstrapper) ownQuorum(ctx context.Context) (answers bool, term uint64) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	client, done, err := b.dial(ctx, b.local())
	if err != nil {
		return false, 0
	}
	status, failed := membership.ReadStatus(ctx, client, b.local())
	if failed == nil {
		term = status.RaftTerm
	}
	err = membership.Linearizable(ctx, client)
	// etcd checks the permission after a quorum confirmed the read.
	if errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) {
		err = nil
	}
	done(errors.Join(failed, err))
	return err == nil, term
}
