package duties

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// upgradeTable is the name of the upgrade decisions in the metric of all decisions.
	upgradeTable = "membership.upgrades"
	// comparePause is the pause between two attempts at a request without an answer. etcd checks its downgrade
	// information each five seconds, and each attempt reads complete databases.
	comparePause = 10 * time.Second
	// hashTimeout bounds the hash of a member's complete data. 8 GiB at 100 MB/s take less.
	hashTimeout = 2 * time.Minute
)

// upgrading is what one leadership knows of druid's request to compare the members.
type upgrading struct {
	// nonce of the request that was tried last, at triedAt, and the rule that decided then.
	nonce   string
	triedAt time.Time
	rule    string
	// sinceIndex is the raft index after which no member writes entries that the next minor version cannot read, 0 if
	// unknown. missing is how many entries the logs still need until no member must apply older entries.
	sinceIndex, missing uint64
}

// upgrade is the duty that compares the members and prepares a change of etcd's version.
type upgrade struct {
	*round
	upgrading upgrading
}

// Run answers a request on the record, if one is open. Without a request it makes no calls. Its state is stored in etcd
// and on the record, so that the next leader's agent can continue.
func (r *upgrade) Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	return false, r.answered(ctx, self, view)
}

func (r *upgrade) answered(ctx context.Context, self Cluster, view membership.View) error {
	order := r.record.Upgrade.Order
	if r.version == "" || !r.record.Upgrade.Open() || r.upgrading.nonce == order.Nonce && time.Since(r.upgrading.triedAt) < r.comparePause {
		return nil
	}
	own, err := r.Store.Member(ctx, self.Member)
	if err != nil {
		return err
	}
	if err := r.read(ctx); err != nil {
		return err
	}
	if !r.record.Upgrade.Open() {
		return nil
	}
	order = r.record.Upgrade.Order
	defer func() { r.upgrading.nonce, r.upgrading.triedAt = order.Nonce, time.Now() }() // the pause begins when the attempt has ended
	authoritative := r.authoritative(self)
	if own.PodUID != self.PodUID {
		authoritative = rules.No // a superseded agent answers nothing
	}
	answer := r.finishUpgrade(ctx, view, authoritative, order)
	if answer.Verdict == "" || answer == r.record.Upgrade.Answer || ctx.Err() != nil {
		return nil
	}
	return r.answerUpgrade(ctx, answer)
}

// finishUpgrade takes the next step for a request and returns the answer. An answer without a verdict is not written.
func (r *upgrade) finishUpgrade(ctx context.Context, view membership.View, authoritative rules.Answer, order leases.UpgradeOrder) leases.UpgradeAnswer {
	voters, trouble := r.statusOfAll(ctx, view)
	facts := upgradeFacts(authoritative, order, voters)
	if trouble != "" {
		facts.Whole = rules.Unknown
	} else {
		var err error
		if facts.Log, err = r.logState(ctx, order, view, voters); err != nil {
			trouble = err.Error()
		}
	}
	d := membership.DecideUpgrade(facts)
	if d.Rule != r.upgrading.rule {
		r.upgrading.rule = d.Rule
		r.Decisions.WithLabelValues(upgradeTable, d.Rule).Inc()
		r.Log.InfoContext(ctx, "upgrade decided", "mode", string(d.Verdict), "rule", d.Rule, "version", order.Version, "downgrade", order.Downgrade)
	}
	unknown := func(why string) leases.UpgradeAnswer {
		return leases.UpgradeAnswer{Nonce: order.Nonce, Verdict: leases.UpgradeUnknown, Why: why}
	}
	switch d.Verdict {
	case membership.UpgradeWait:
		return leases.UpgradeAnswer{}
	case membership.UpgradeReport:
		if trouble != "" {
			return unknown(trouble)
		}
		return unknown(d.Why + storageText(order, voters))
	case membership.UpgradeAwaitEdit:
		return leases.UpgradeAnswer{Nonce: order.Nonce, Verdict: leases.UpgradeAwaitsEdit, Why: d.Why}
	case membership.UpgradeAnnounce:
		return unknown(outcome("the downgrade was announced to etcd", r.announce(ctx, order.Downgrade)))
	case membership.UpgradeCancel:
		return unknown(outcome("the downgrade that was announced to etcd was canceled", r.cancelDowngrade(ctx)))
	case membership.UpgradePassLog:
		return unknown(outcome(passedText(r.upgrading.missing), r.passLog(ctx)))
	case membership.UpgradeCompare:
	}
	return r.compareMembers(ctx, view, voters, order.Nonce)
}

// outcome returns done, or etcd's error.
func outcome(done string, err error) string {
	if err != nil {
		return err.Error()
	}
	return done
}

// statusOfAll asks every member itself. The second result names a member that did not answer or that does not vote.
func (r *round) statusOfAll(ctx context.Context, view membership.View) ([]membership.Status, string) {
	all, errs := make([]membership.Status, len(view.Members)), make([]error, len(view.Members))
	var group errgroup.Group
	for i, m := range view.Members {
		group.Go(func() error {
			all[i], errs[i] = statusOf(ctx, r.Dial, view.ClusterID, m)
			return nil
		})
	}
	_ = group.Wait() // each member's error stands in errs
	for i, m := range view.Members {
		switch {
		case m.Learner:
			return all, fmt.Sprintf("member %s is not a voter yet", nameOf(m))
		case errs[i] != nil:
			return all, fmt.Sprintf("member %s does not answer: %v", nameOf(m), errs[i])
		}
	}
	return all, ""
}

func nameOf(m membership.Member) string {
	if m.Name == "" {
		return leases.FormatID(m.ID)
	}
	return m.Name
}

// compareMembers asks each member for its member list and for the hash of its complete data at a revision that every
// member has applied. An error is unknown, never equal.
func (r *upgrade) compareMembers(ctx context.Context, view membership.View, all []membership.Status, nonce string) leases.UpgradeAnswer {
	a := leases.UpgradeAnswer{Nonce: nonce, Verdict: leases.UpgradeUnknown, Members: len(all)}
	revision := all[0].Revision
	for _, s := range all {
		revision = min(revision, s.Revision)
	}
	contents, views, errs := make([]membership.Content, len(all)), make([]membership.View, len(all)), make([]error, len(all))
	var group errgroup.Group
	for i, m := range view.Members {
		group.Go(func() error {
			contents[i], views[i], errs[i] = r.heldBy(ctx, view.ClusterID, m, revision)
			return nil
		})
	}
	_ = group.Wait() // each member's error stands in errs
	for i, m := range view.Members {
		if errs[i] != nil {
			a.Why = fmt.Sprintf("member %s: %v", nameOf(m), errs[i])
			return a
		}
	}
	for i, m := range view.Members {
		if !views[i].Same(view) {
			a.Verdict, a.Why = r.listsDiffer(ctx, view, m, views[i])
			return a
		}
	}
	switch membership.Judge(len(contents), contents).Verdict {
	case membership.VerdictSame:
		a.Verdict, a.Revision, a.CompactRevision = leases.UpgradeAgree, revision, contents[0].CompactRevision
	case membership.VerdictDiffering, membership.VerdictTie:
		r.comparison.now = true
		a.Verdict, a.Why = leases.UpgradeDiffer, hashText(view, contents)
	case membership.VerdictUnknown:
		a.Why = "a compaction is in progress; the members can be compared when all of them have completed it"
	}
	return a
}

// listsDiffer distinguishes a different list from a list that changed meanwhile. Each list is read through raft. The
// leader and the member are read again, the leader first: a change that began and ended between the two reads of the
// leader shows in the member's second list.
func (r *upgrade) listsDiffer(
	ctx context.Context, before membership.View, m membership.Member, listed membership.View,
) (leases.UpgradeVerdict, string) {
	query := membership.Query{Endpoints: []string{r.Local}, ClusterID: before.ClusterID, Timeout: callTimeout}
	after, err := membership.Observe(ctx, r.Dial, query)
	if err != nil {
		return leases.UpgradeUnknown, err.Error()
	}
	query.Endpoints = m.ClientURLs[:1]
	again, err := membership.Observe(ctx, r.Dial, query)
	switch {
	case err != nil:
		return leases.UpgradeUnknown, fmt.Sprintf("member %s: %v", nameOf(m), err)
	case !after.Same(before), !again.Same(listed), again.Same(after):
		return leases.UpgradeUnknown, "the member list changed during the comparison"
	default:
		return leases.UpgradeDiffer, fmt.Sprintf("the member list of member %s differs from that of the leader", nameOf(m))
	}
}

// heldBy asks one member for its list and for the hash, at its published URLs. It rejects answers from another member.
func (r *upgrade) heldBy(ctx context.Context, clusterID uint64, m membership.Member, revision int64) (c membership.Content, v membership.View, err error) {
	if v, err = membership.Observe(ctx, r.Dial, membership.Query{Endpoints: m.ClientURLs[:1], ClusterID: clusterID, Timeout: callTimeout}); err != nil {
		return c, v, err
	}
	if c, err = contentOf(ctx, r.Dial, clusterID, m, revision); err == nil && v.Answerer != m.ID {
		err = fmt.Errorf("%w: %s", membership.ErrOtherMember, leases.FormatID(v.Answerer))
	}
	return c, v, err
}

func hashText(view membership.View, contents []membership.Content) string {
	return fmt.Sprintf("at revision %d, compacted at %d, hashes differ: %s", contents[0].Revision, contents[0].CompactRevision, hashesOf(view, contents))
}

func (r *upgrade) announce(ctx context.Context, target string) error {
	err := r.withLocal(ctx, func(ctx context.Context, client *clientv3.Client) error {
		crash.Before("announce-downgrade")
		err := membership.EnableDowngrade(ctx, client, target)
		crash.After("announce-downgrade")
		return err
	})
	if err != nil {
		return err
	}
	r.Log.WarnContext(ctx, "downgrade announced", "to", target)
	return nil
}

func (r *upgrade) cancelDowngrade(ctx context.Context) error {
	err := r.withLocal(ctx, func(ctx context.Context, client *clientv3.Client) error {
		crash.Before("cancel-downgrade")
		err := membership.CancelDowngrade(ctx, client)
		crash.After("cancel-downgrade")
		return err
	})
	if err != nil {
		return err
	}
	r.Log.WarnContext(ctx, "downgrade canceled")
	return nil
}

// answerUpgrade writes the answer if the record is as it was read. After a conflict, the comparison runs again.
func (r *upgrade) answerUpgrade(ctx context.Context, a leases.UpgradeAnswer) error {
	crash.Before("answer-upgrade")
	version, err := r.Store.AnswerUpgrade(ctx, r.version, a)
	crash.After("answer-upgrade")
	if err != nil {
		return r.notWritten(err)
	}
	r.version, r.record.Upgrade.Answer = version, a
	r.Log.InfoContext(ctx, "members compared", "verdict", string(a.Verdict), "revision", a.Revision, "reason", a.Why)
	return nil
}
