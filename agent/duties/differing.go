package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// differingTable is the name of the decisions about a marked member in the metric of all decisions.
const differingTable = "membership.differingMembers"

// differingInterval is the pause between two looks at the mark on the own Lease, which costs nothing.
const differingInterval = time.Second

// undecidedOften is how many comparisons in a row may say nothing before the pause between them grows. The first ones
// follow a start, when the member and those that restart with it do not answer yet.
const undecidedOften = 5

// maxUndecidedPause bounds how far that pause grows. A member that is marked meanwhile is replaced that much later at most.
const maxUndecidedPause = 5 * time.Minute

// DifferingMember stops the etcd of the agent's own member if its data differs from that of a majority of all voters. The start
// decision then moves the data to quarantine, and the member joins again.
type DifferingMember struct {
	Store *leases.Store
	Dial  membership.Dial
	// Local is the client endpoint of the agent's own member.
	Local string
	// Self returns the agent's own member and Pod, or false while they are unknown.
	Self func() (Cluster, bool)
	// Marked says whether the agent's own Lease had the mark of a member whose data differs when it was last read. Until then,
	// DifferingMember sends no requests.
	Marked func() bool
	// Unchecked says whether the data of the running etcd was not compared with that of the other members at its start,
	// and Compared says that it was compared since.
	Unchecked func() bool
	Compared  func()
	Log       *slog.Logger
	// Decisions counts decisions by table and rule.
	Decisions *prometheus.CounterVec

	reported, trouble loop.Change[string]
	// undecided counts the comparisons in a row, of the running etcd, that said nothing about the own data.
	undecided int
}

// Run follows a running etcd until ctx ends, which must end when etcd does. stop must stop that etcd.
func (o *DifferingMember) Run(ctx context.Context, stop func(ctx context.Context, reason string) error) error {
	o.undecided = 0
	for pause := differingInterval; loop.Sleep(ctx, pause); {
		pause = differingInterval
		if !o.Marked() && !o.Unchecked() {
			continue
		}
		began := time.Now()
		err := o.look(ctx, stop)
		text := ""
		if err != nil && !errors.Is(err, leases.ErrConflict) {
			text = err.Error()
		}
		if o.trouble.To(text) && text != "" && ctx.Err() == nil {
			o.Log.WarnContext(ctx, "replacement of a member whose data differs failed, retrying", "err", err)
		}
		pause = differingPause(time.Since(began), o.undecided)
	}
	return nil
}

// differingPause returns the pause after a look that took that long, and after that many comparisons in a row that said nothing.
func differingPause(took time.Duration, undecided int) time.Duration {
	pause := max(differingInterval, took*compareShare)
	return max(pause, min(maxUndecidedPause, pause<<min(max(0, undecided-undecidedOften), maxDoublings)))
}

// look compares the data of all voters, and takes the next step. The slot on the record is taken before etcd stops: the next
// start moves the data to quarantine because of the mark and the slot.
func (o *DifferingMember) look(ctx context.Context, stop func(ctx context.Context, reason string) error) error {
	self, known := o.Self()
	if !known {
		return nil
	}
	status, err := statusOf(ctx, o.Dial, self.ClusterID, membership.Member{ID: self.MemberID, ClientURLs: []string{o.Local}})
	if err != nil || status.Role == membership.RoleLearner {
		return err // the hashes of voters say nothing about a learner: it is compared when it votes
	}
	record, version, err := o.Store.Record(ctx) // before the list, which is written to it
	if err != nil {
		return err
	}
	view, err := membership.Observe(ctx, o.Dial, membership.Query{Endpoints: []string{o.Local}, ClusterID: self.ClusterID, Timeout: callTimeout})
	if err != nil {
		return err
	}
	found, silent := compareVoters(ctx, o.Dial, view)
	own, err := o.Store.Member(ctx, self.Member)
	if err != nil {
		return err
	}
	authoritative := rules.AnswerOf(record.Phase == leases.PhaseFormed && record.ClusterID == self.ClusterID && record.Lists(self.Member) &&
		own.PodUID == self.PodUID)
	data := membership.OwnDataOf(found, self.MemberID)
	if o.undecided++; data != membership.OwnUndecided {
		o.undecided = 0
	}
	if !own.Differs.Of(self.MemberID) { // the mark belongs to an earlier ID, or there is none
		if !o.Unchecked() {
			o.undecided = 0
			return nil
		}
		return o.resolve(ctx, self, view, found, membership.DecideUnchecked(membership.UncheckedFacts{
			Authoritative: authoritative, Own: data, OthersDiffer: rules.YesNoOf(found.Verdict == membership.VerdictDiffering),
		}))
	}
	want := leases.Replacing{Member: self.Member, PodUID: self.PodUID, MemberID: leases.FormatID(self.MemberID)}
	d := membership.DecideDiffering(membership.DifferingFacts{Authoritative: authoritative, Own: data, Slot: slotOf(record, self.Member)})
	if o.reported.To(d.Rule) {
		o.Decisions.WithLabelValues(differingTable, d.Rule).Inc()
		o.Log.WarnContext(ctx, "data of this member differs", "mode", d.Verdict, "rule", d.Rule, "reason", d.Why, "verdict", string(found.Verdict),
			"revision", found.Revision, "hashes", hashesOf(view, found.Contents), "silent", silent)
	}
	if d.Verdict != membership.DifferingReplace {
		return nil
	}
	return o.replace(ctx, record, version, want, listOf(view), func() error { return stop(ctx, d.Why) })
}

// replace takes the slot of the record, hands leadership over, and stops etcd.
func (o *DifferingMember) replace(ctx context.Context, record leases.Record, version leases.Version, want leases.Replacing, list leases.MemberList,
	stop func() error,
) error {
	if record.Replacing == nil || *record.Replacing != want {
		taken, err := record.Replace(want, list)
		if err != nil {
			return err
		}
		crash.Before("take-slot-differing")
		_, err = o.Store.UpdateRecord(ctx, version, taken)
		crash.After("take-slot-differing")
		if err != nil {
			return fmt.Errorf("write the replacement of member %s to the cluster record: %w", want.MemberID, err)
		}
	}
	if _, err := Transfer(ctx, o.Dial, o.Local); err != nil {
		o.Log.WarnContext(ctx, "leadership transfer failed", "err", err)
	}
	return stop()
}

// slotOf returns the state of the slot of the record for the member called name.
func slotOf(record leases.Record, name string) membership.SlotState {
	switch {
	case record.Replacing != nil && record.Replacing.Member == name:
		return membership.SlotOurs
	case record.Replaces(),
		record.PendingRemoval != nil && record.Lists(record.PendingRemoval.Member):
		return membership.SlotOther
	default:
		return membership.SlotFree
	}
}
