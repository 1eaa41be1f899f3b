package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/survivor"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// permanentFailure is an order that no later attempt can carry out before a user acts. The disk report of the volume says so. druid
// releases an order to restore in place. One after a lost quorum stands, so that the agent tries again: a user can add a key, replace
// an object or enlarge the volume meanwhile.
type permanentFailure struct {
	// order is its name, empty for none.
	order   string
	failure leases.RestoreFailure
	// attempts is how many in a row failed in this way, and permanent how many failed in this way or another one that stays.
	attempts, permanent int
	// words are the error for users.
	words string
	// furthest is the most progress that one of these attempts made.
	furthest restore.Progress
}

// attemptsAlike in a row that fail in the same way are a permanent failure. One is not enough: a store that answers 404 for a moment,
// an object that changes while it is read, and a Secret that the kubelet replaces look like something that stays.
const attemptsAlike = 2

// attemptsPermanent in a row that fail in ways that stay, and differ in turn, are a permanent failure too.
const attemptsPermanent = 2 * attemptsAlike

// releaseInterval is how often the agent looks whether an order that fails permanently was released.
const releaseInterval = 2 * time.Second

// errPlanned: the backups lead to something else than the plan that was approved.
var errPlanned = errors.New("the backups do not lead to what was approved")

// failureOf says why the same attempt fails again, for an error of an attempt to restore a backup. It is empty for an error that can
// pass: the store does not answer, or it denies access.
func failureOf(err error) leases.RestoreFailure {
	switch {
	case errors.Is(err, restore.ErrQuota):
		return leases.FailedQuota
	case errors.Is(err, restore.ErrAuth):
		return leases.FailedAuth
	case errors.Is(err, restore.ErrVersion), errors.Is(err, store.ErrNewer):
		return leases.FailedVersion
	case restore.IsFull(err):
		return leases.FailedSpace
	case errors.Is(err, store.ErrNoKey):
		return leases.FailedKey
	case isUnusable(err), isUnplanned(err), errors.Is(err, errPlanned), errors.Is(err, store.ErrAbsent):
		return leases.FailedBackups
	default:
		return ""
	}
}

// diskFailureOf says why the same attempt fails again, for an error of an attempt to form the raft group from the own disk. It is
// empty for an error that can pass. No such attempt reads the backup store.
func diskFailureOf(err error) leases.RestoreFailure {
	switch {
	case restore.IsFull(err):
		return leases.FailedSpace
	case errors.Is(err, restore.ErrVersion):
		return leases.FailedVersion
	case errors.Is(err, survivor.ErrNoData), errors.Is(err, survivor.ErrDamagedLog), errors.Is(err, survivor.ErrRequest):
		return leases.FailedData
	default:
		return ""
	}
}

// fails notes how an attempt to carry out an order failed.
func (b *Bootstrapper) fails(ctx context.Context, order *leases.Recovery, err error) {
	if ctx.Err() != nil {
		return
	}
	was, failure := b.unrestorable, failureOf(err)
	if order.Mode == leases.RecoverSurvivor {
		failure = diskFailureOf(err)
	}
	if failure == "" && was.order == order.Name() && further(was.furthest, b.attemptAt) {
		return // an attempt that got less far says nothing about the failure of the earlier one
	}
	b.unrestorable = permanentFailure{}
	if failure == "" {
		return
	}
	b.unrestorable = permanentFailure{order: order.Name(), failure: failure, attempts: 1, permanent: 1, words: err.Error(), furthest: b.attemptAt}
	if was.order == order.Name() && (was.failure == failure || was.attempts < attemptsAlike) { // after a report, another failure counts again
		b.unrestorable.permanent += was.permanent
	}
	if was.order == order.Name() && was.failure == failure {
		b.unrestorable.attempts += was.attempts
		if further(was.furthest, b.attemptAt) {
			b.unrestorable.furthest = was.furthest
		}
	}
	if b.failureIn(order.Name()) == "" {
		return
	}
	b.log.WarnContext(ctx, "recovery order not carried out, and another attempt would fail too", "order", order.Name(), "failure", string(failure), "err", err)
}

// attempted notes how an attempt to carry out an order ended, and reports it at once. druid acts on what the disk report says, so the failure
// of an earlier attempt must not stay there.
func (b *Bootstrapper) attempted(ctx context.Context, o *observation, order *leases.Recovery, err error) {
	if err == nil {
		b.unrestorable = permanentFailure{}
	} else {
		b.fails(ctx, order, err)
	}
	b.reportFailed(o, b.failureIn(order.Name()))
}

// reportFurther removes an earlier failure from the disk report when the present attempt got further than each that failed in this way. It
// does not when the attempt begins: druid would report the failure and the attempt in turn.
func (b *Bootstrapper) reportFurther(o *observation) {
	if further(b.attemptAt, b.unrestorable.furthest) {
		b.reportFailed(o, "")
	}
}

// phases of an attempt, in their order.
var phases = []restore.Phase{restore.Fetching, restore.Applying, restore.Surveying, restore.Writing, restore.Finishing}

// further says whether an attempt with the progress a got further than one with the progress b. No progress is less than any other.
func further(a, b restore.Progress) bool {
	return cmp.Or(cmp.Compare(slices.Index(phases, a.Phase), slices.Index(phases, b.Phase)), cmp.Compare(a.Bytes, b.Bytes),
		cmp.Compare(a.DeltaBytes, b.DeltaBytes), cmp.Compare(a.Events, b.Events)) > 0
}

// reportFailed writes to the disk report why the order cannot be carried out, empty if it can be.
func (b *Bootstrapper) reportFailed(o *observation, failed leases.RestoreFailure) {
	if o.report != nil {
		report := *o.report
		report.Failed = failed
		b.held(&report)
	}
}

// failureIn says why the order called name cannot be carried out. It is empty if it can be, and without an order.
func (b *Bootstrapper) failureIn(name string) leases.RestoreFailure {
	u := b.unrestorable
	if name == "" || name != u.order || u.attempts < attemptsAlike && u.permanent < attemptsPermanent {
		return ""
	}
	return u.failure
}

// awaitsRelease reports why an order to restore in place cannot be carried out, and waits for its release. It returns
// false for an order that can be, and for one that has no other end.
func (b *Bootstrapper) awaitsRelease(ctx context.Context, order *leases.Recovery, inform func(string)) bool {
	if !order.Restores() || b.failureIn(order.Name()) == "" {
		return false
	}
	inform(b.unrestorable.words)
	loop.Sleep(ctx, releaseInterval)
	return true
}

// interval grows during a long wait, so that a cluster that waits for user action costs little.
func (b *Bootstrapper) interval() time.Duration {
	if over := time.Since(b.started) - calmAfter; over > 0 {
		return min(calmInterval, b.poll+over/8)
	}
	return b.poll
}

// Pauses before an etcd that keeps crashing is started again: none after the first crash, then doubling.
const (
	crashPause, maxCrashPause = time.Second, 30 * time.Second
	// soonAfter separates crashes at start from later ones: an etcd that ran longer did not crash because of its
	// start.
	soonAfter = 10 * time.Second
)

// restAfterCrash waits before the next start of an etcd that exits repeatedly. It returns whether it waited.
func (b *Bootstrapper) restAfterCrash(ctx context.Context, report launch.Report, say func(string)) bool {
	rest, why := b.crashRest(report)
	if rest == 0 {
		return false
	}
	say(fmt.Sprintf("%s; the next start is in %s", why, rest))
	loop.Sleep(ctx, rest)
	return true
}

// crashRest returns how long to wait and why. launch counts only crashes of etcd. A program that could not be run is
// not one of them. But it would fail again at once, and each such start can cost a claim in the record.
func (b *Bootstrapper) crashRest(report launch.Report) (rest time.Duration, why string) {
	exit := report.LastExit
	if exit != nil && exit.Code == -1 && exit.Signal == "" {
		b.notRun++
		return doubling(b.notRun - 1), "etcd could not be started: " + exit.Message
	}
	b.notRun = 0
	// A learner that lost the race with another joining member exits too. It is started again at once.
	if report.Crashes < 2 || exit == nil || exit.RanFor > soonAfter || b.joining.attempts > 1 {
		return 0, ""
	}
	return doubling(report.Crashes - 2), fmt.Sprintf("etcd exited %d times in a row, last with code %d %s; see the log of the etcd container",
		report.Crashes, exit.Code, exit.Signal)
}

func doubling(times int) time.Duration { return min(maxCrashPause, crashPause<<min(times, 5)) }

// withoutCertificates reports that etcd cannot start before the certificates are good. Without them, the agent cannot
// reach other members, so there is nothing to observe.
func (b *Bootstrapper) withoutCertificates(ctx context.Context, problem error) string {
	d := Decision{Mode: ModeWait, Rule: RuleCertificates, Reason: strings.ReplaceAll(problem.Error(), "\n", "; ")}
	b.publish(ctx, d, &observation{Facts: Facts{Data: DataUnread}})
	return d.Reason
}

// RuleCertificates is the rule in the member Lease while etcd waits for certificates. It is no row of the table: it comes
// before every observation.
const RuleCertificates = "certificates-not-usable"

// fail logs the error of an act, once for each change.
func (b *Bootstrapper) fail(ctx context.Context, err error) {
	if err.Error() != b.failed {
		b.failed = err.Error()
		b.log.WarnContext(ctx, "start failed, retrying", "rule", b.last.Rule, "err", err)
	}
}
