package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// comparisonTable is the name of the decisions about comparisons in the metric of all decisions.
const comparisonTable = "membership.comparisons"

// compareShare is the part of the time that comparisons may take while something differs or is unknown: each reads complete
// databases.
const compareShare = 10

// maxDoublings bounds the pause between two comparisons of which nothing is known.
const maxDoublings = 12

// comparison is the duty that compares the data of all voters.
type comparison struct {
	*round
	// now requests a comparison, whatever the interval is.
	now bool
	// comparedAt is when the last comparison of this leadership ended, and pause is the time until the next one.
	comparedAt time.Time
	pause      time.Duration
	// found is the result of that comparison.
	found membership.Comparison
	// incomplete counts the comparisons in a row of which nothing is known.
	incomplete int
	last       string
}

// Run compares the data of all voters when this agent begins to lead, after each interval, when etcd raises the alarm
// CORRUPT, and when a comparison for a version change found a difference. While something differs or is unknown, it compares
// again earlier. What it found is on a member Lease or on the record, where the next leader's agent continues.
func (r *comparison) Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	if r.Compare == nil || !r.due(ctx) {
		return false, nil
	}
	began := time.Now()
	found, silent := compareVoters(ctx, r.Dial, view)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if silent != nil {
		r.Log.DebugContext(ctx, "comparison of the members incomplete", "err", silent)
	}
	d, err := r.conclude(ctx, self, view, found)
	r.now, r.comparedAt, r.pause, r.found = false, time.Now(), r.Compare(), found
	if r.incomplete++; found.Verdict != membership.VerdictUnknown {
		r.incomplete = 0
	}
	if d.Verdict != membership.ComparisonKeep {
		// A member that is down for hours must not have the others read their databases all the time.
		r.pause = min(r.pause, max(r.comparePause, compareShare*time.Since(began))<<min(r.incomplete, maxDoublings))
	}
	return false, err
}

// due says whether a comparison is due. The alarm CORRUPT makes it due after the pause between two attempts.
func (r *comparison) due(ctx context.Context) bool {
	since := time.Since(r.comparedAt)
	switch {
	case r.comparedAt.IsZero(), r.now, since >= min(r.pause, r.Compare()):
		return true
	case since < r.comparePause:
		return false
	}
	status, err := r.localStatus(ctx)
	return err == nil && status.Corrupt()
}

// marked is a voter with a Lease that says that its data differs.
type marked struct {
	name string
	at   leases.Version
}

// conclude decides about the result of a comparison, and takes one step.
func (r *comparison) conclude(ctx context.Context, self Cluster, view membership.View,
	found membership.Comparison) (rules.Decision[membership.ComparisonVerdict], error) {
	equal := found.Found()&(membership.FoundSame|membership.FoundUnknown) != 0
	if !equal {
		r.report(found, false)
	}
	wait := rules.Decision[membership.ComparisonVerdict]{Verdict: membership.ComparisonWait}
	if err := r.read(ctx); err != nil {
		return wait, err
	}
	own, err := r.Store.Member(ctx, self.Member)
	if err != nil {
		return wait, err
	}
	raised, err := r.databases.alarms(ctx)
	if err != nil {
		return wait, err
	}
	authoritative := r.authoritative(self)
	if own.PodUID != self.PodUID {
		authoritative = rules.No // a superseded agent changes nothing
	}
	differing, ours := r.differingOf(view, found)
	has, mark, differed := r.marks(ctx, view)
	d := membership.DecideComparison(membership.ComparisonFacts{
		Authoritative: authoritative, Found: found.Found(), Undecided: rules.YesNoOf(r.record.Undecided != leases.Undecided{}),
		Ours: rules.YesNoOf(ours), Marked: mark, Quiet: rules.YesNoOf(r.record.Replacing == nil && !r.request.isClaimed()),
		Corrupt: rules.YesNoOf(slices.ContainsFunc(raised, func(a membership.Alarm) bool { return a.Type == membership.AlarmCorrupt })),
	})
	r.report(found, equal && r.record.Undecided == leases.Undecided{} && mark == rules.No)
	r.note(ctx, view, found, d)
	r.reportDiffered(differed, d, differing)
	switch d.Verdict {
	case membership.ComparisonMark:
		return d, markDiffering(ctx, r.Store, differing.Name, differing.ID, found)
	case membership.ComparisonUnmark:
		return d, writeMark(ctx, r.Store, has, leases.Difference{}) // the member has the data of all others
	case membership.ComparisonReport:
		return d, r.reportTie(ctx, leases.Undecided{Revision: found.Revision, Confirmed: found.Confirmed, Hashes: hashesOf(view, found.Contents)})
	case membership.ComparisonWithdraw:
		return d, r.reportTie(ctx, leases.Undecided{})
	case membership.ComparisonDisarm:
		return d, r.disarm(ctx, raised)
	case membership.ComparisonKeep, membership.ComparisonWait:
	}
	return d, nil
}

// differingOf returns the differing voter to replace first: the first one by name that the record lists.
func (r *comparison) differingOf(view membership.View, found membership.Comparison) (differing membership.Member, ours bool) {
	for _, m := range view.Voters() {
		if found.Names(m.ID) && r.record.Lists(m.Name) && (!ours || m.Name < differing.Name) {
			differing, ours = m, true
		}
	}
	return differing, ours
}

// marks returns a voter whose Lease says that the data of its present ID differs. It reads the Lease of each desired member, and also returns
// the IDs in all marks: that of a member stays on its Lease after it was replaced.
func (r *comparison) marks(ctx context.Context, view membership.View) (found marked, answer rules.Answer, differed []uint64) {
	answer = rules.No
	for _, name := range r.record.Members {
		lease, err := r.Store.Marks(ctx, name)
		if err != nil {
			answer = rules.Unknown
			continue
		}
		id, err := leases.ParseID(lease.Differs.MemberID)
		if err != nil || id == 0 {
			continue // no mark
		}
		differed = append(differed, id)
		if m, listed := view.Member(id); listed && !m.Learner && found.name == "" {
			found = marked{name, lease.LeaseVersion}
		}
	}
	if found.name != "" {
		answer = rules.Yes
	}
	return found, answer, differed
}

// reportDiffered reports the IDs of members whose data differs, with that of the member that a decision marks.
func (r *comparison) reportDiffered(ids []uint64, d rules.Decision[membership.ComparisonVerdict], marks membership.Member) {
	if d.Verdict == membership.ComparisonMark {
		ids = append(ids, marks.ID)
	}
	if r.Differed != nil {
		r.Differed(ids)
	}
}

// markDiffering writes on the Lease of a member that its data differs, as the comparison found.
func markDiffering(ctx context.Context, store *leases.Store, name string, id uint64, found membership.Comparison) error {
	lease, err := store.Marks(ctx, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(found.Differing, func(c membership.Content) bool { return c.MemberID == id })
	return writeMark(ctx, store, marked{name, lease.LeaseVersion}, differenceOf(found, found.Differing[i]))
}

// writeMark changes the mark of a member. The zero difference removes it. After a conflict, the next comparison tries again.
func writeMark(ctx context.Context, store *leases.Store, m marked, d leases.Difference) error {
	crash.Before("mark-difference")
	err := store.MarkDifference(ctx, m.name, m.at, d)
	crash.After("mark-difference")
	if errors.Is(err, leases.ErrConflict) {
		return nil
	}
	return err
}

func differenceOf(found membership.Comparison, differing membership.Content) leases.Difference {
	return leases.Difference{
		MemberID: leases.FormatID(differing.MemberID), Revision: differing.Revision, CompactRevision: differing.CompactRevision, Confirmed: found.Confirmed,
		Hash: fmt.Sprintf("%08x", differing.Hash), Majority: fmt.Sprintf("%08x", found.Majority.Hash),
	}
}

// reportTie writes to the record that no majority has the same data, or removes that.
func (r *comparison) reportTie(ctx context.Context, u leases.Undecided) error {
	crash.Before("report-undecided")
	version, err := r.Store.ReportUndecided(ctx, r.version, u)
	crash.After("report-undecided")
	if err != nil {
		return r.notWritten(err)
	}
	r.version, r.record.Undecided = version, u
	return nil
}

// disarm clears the alarms CORRUPT.
func (r *comparison) disarm(ctx context.Context, raised []membership.Alarm) error {
	return r.disarmEach(ctx, raised, membership.AlarmCorrupt, func(ctx context.Context, client *clientv3.Client, alarm membership.Alarm) error {
		crash.Before("disarm-corrupt")
		err := membership.Disarm(ctx, client, alarm)
		crash.After("disarm-corrupt")
		return err
	})
}

// note counts and logs a decision once per change.
func (r *comparison) note(ctx context.Context, view membership.View, found membership.Comparison, d rules.Decision[membership.ComparisonVerdict]) {
	if r.last == d.Rule {
		return
	}
	quiet := r.last == "" && d.Verdict == membership.ComparisonKeep
	r.last = d.Rule
	r.Decisions.WithLabelValues(comparisonTable, d.Rule).Inc()
	level := r.Log.WarnContext
	if quiet || d.Verdict == membership.ComparisonKeep {
		level = r.Log.InfoContext
	}
	level(ctx, "data of the members compared", "verdict", string(found.Verdict), "mode", d.Verdict, "rule", d.Rule, "reason", d.Why,
		"revision", found.Revision, "hashes", hashesOf(view, found.Contents))
}

func (r *comparison) report(found membership.Comparison, equal bool) {
	if r.Compared != nil {
		r.Compared(found, equal)
	}
}

// hashesOf returns the hash of each voter that answered, by name.
func hashesOf(view membership.View, contents []membership.Content) string {
	var words []string
	for _, c := range contents {
		if m, listed := view.Member(c.MemberID); listed {
			words = append(words, fmt.Sprintf("%s %08x", nameOf(m), c.Hash))
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
