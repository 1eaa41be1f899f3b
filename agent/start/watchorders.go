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

// watchInterval is how often the agent asks its etcd for a linearizable read, and then, without an answer, the API server
// for the record.
const watchInterval = 5 * time.Second

// watchMisses is how many reads in a row fail before etcd counts as without a quorum. One can fail during an election.
const watchMisses = 2

// Calls is what the cluster record requests of a member whose etcd runs.
type Calls uint8

// The requests.
const (
	CallsNothing Calls = 1 << iota
	CallsOrder         // a recovery order stands that is later than the data
	CallsLater         // a later raft group was formed
	CallsUnknown       // the record cannot be read
)

func (c Calls) String() string {
	return rules.Word(c, "nothing", "recovery order", "later raft group", "unknown")
}

// RunFacts is the complete input of runRules.
type RunFacts struct {
	Serves rules.YesNo `fact:"etcd answers a linearizable read"`
	Calls  Calls       `fact:"cluster record names"`
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
	{Name: "serves", When: RunFacts{Serves: rules.Yes}, Verdict: KeepRunning,
		Why: "a quorum serves, and no order ends it"},
	{Name: "order-stops", When: RunFacts{Calls: CallsOrder}, Verdict: StopEtcd,
		Why: "a recovery order stands, and etcd has no quorum"},
	{Name: "waits-for-quorum", When: RunFacts{Calls: CallsNothing | CallsUnknown}, Verdict: KeepRunning,
		Why: "the members can be a quorum again"},
})

// callsOf compares the record with the identity of the data on which etcd runs.
func callsOf(r recordState, identityFile datadir.IdentityFile) Calls {
	switch order := r.record.Order(); {
	case r.err != nil:
		return CallsUnknown
	case order != nil && order.Epoch > identityFile.Epoch:
		return CallsOrder
	case r.record.Phase == leases.PhaseFormed && r.record.FormedEpoch > identityFile.Epoch && r.record.ClusterID != uint64(identityFile.ClusterID):
		return CallsLater
	default:
		return CallsNothing
	}
}

// WatchOrders follows a running etcd, and stops it if the record calls for that. It reads the record if etcd has no quorum, or
// if the leader's duties read of a later raft group. ctx must end when etcd does. stop must stop etcd.
func (b *Bootstrapper) WatchOrders(ctx context.Context, stop func(ctx context.Context, reason string) error) error {
	for misses := 0; ; {
		look, again := b.nextLook(ctx)
		if !again {
			return nil
		}
		serves := rules.YesNoOf(b.answers(ctx))
		if misses++; serves == rules.Yes {
			misses = 0
		}
		if look == lookDue && misses < watchMisses {
			continue
		}
		if err := b.obey(ctx, serves, stop); err != nil {
			return err
		}
	}
}

// looks are the reasons to look at the own etcd.
type looks uint8

const (
	lookDue   looks = iota // the interval is over
	lookLater              // the leader's duties read of a later raft group
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

// obey reads the record, and stops etcd if the record calls for that.
func (b *Bootstrapper) obey(ctx context.Context, serves rules.YesNo, stop func(ctx context.Context, reason string) error) error {
	identityFile, known := b.Identity()
	if !known {
		return nil
	}
	var r recordState
	reading, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	r.record, r.version, r.err = b.store.Record(reading)
	cancel()
	d := runRules.Decide(RunFacts{Serves: serves, Calls: callsOf(r, identityFile)})
	if d.Verdict == StopEtcd && ctx.Err() == nil {
		b.log.InfoContext(ctx, "etcd stopped for a recovery", "rule", d.Rule)
		b.metrics.WithLabelValues(runTable, d.Rule).Inc()
		return stop(ctx, d.Why)
	}
	return nil
}

// compareGroup compares a record that the leader's duties read with the data on which etcd runs. An etcd with a quorum of an
// earlier raft group does not read the record itself.
func (b *Bootstrapper) compareGroup(record leases.Record, identityFile datadir.IdentityFile) {
	if callsOf(recordState{record: record}, identityFile) != CallsLater {
		return
	}
	select {
	case b.later <- struct{}{}:
	default: // one look is enough
	}
}

// runTable is the name of the table in the metric of all decisions.
const runTable = "bootstrap.runs"

// answers says whether the own etcd answers a linearizable read.
func (b *Bootstrapper) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	client, err := b.dial(ctx, b.local())
	if err != nil {
		return false
	}
	defer func() { _ = client.Close() }()
	err = membership.Linearizable(ctx, client)
	// etcd checks the permission after a quorum confirmed the read.
	return err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
}
