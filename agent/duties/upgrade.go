package duties

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// upgradeTable is the name of what is done about an order to compare the members in the metric of all decisions.
	upgradeTable = "membership.upgrades"
	// comparePause between two attempts at an order that was not found out: etcd looks each five seconds at what it was informed of
	// a downgrade, and each attempt reads whole databases.
	comparePause = 10 * time.Second
	// hashTimeout of a member's hash of all that it holds: 8 GiB are read at 100 MB/s within it.
	hashTimeout = 2 * time.Minute
)

// upgrading is what one leadership knows of druid's order to compare the members.
type upgrading struct {
	// nonce of the order that was tried last, at triedAt, and the rule that decided then.
	nonce   string
	triedAt time.Time
	rule    string
	// sinceIndex is the raft index from which on no member writes what the next minor cannot read, 0 while that was not looked at. missing
	// is how many entries the members' logs lack until none needs to apply what was written before.
	sinceIndex, missing uint64
}

// upgrade answers an order on the record, if one is open. Without one it costs nothing. What is asked again stands in etcd and on the record,
// so the next leader's agent goes on.
func (r *round) upgrade(ctx context.Context, self Cluster, view membership.View) error {
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

// settleUpgrade does the next thing about an order, and says what to answer; an answer without a verdict is none.
func (r *round) finishUpgrade(ctx context.Context, view membership.View, authoritative rules.Answer, order leases.UpgradeOrder) leases.UpgradeAnswer {
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
		return unknown(outcome("the downgrade is announced to etcd", r.announce(ctx, order.Downgrade)))
	case membership.UpgradeCancel:
		return unknown(outcome("the downgrade that was announced to etcd is taken back", r.cancelDowngrade(ctx)))
	case membership.UpgradePassLog:
		return unknown(outcome(passedText(r.upgrading.missing), r.passLog(ctx)))
	case membership.UpgradeCompare:
	}
	return r.compareMembers(ctx, view, voters, order.Nonce)
}

// outcome is what was done, or etcd's own words on why it could not be.
func outcome(done string, err error) string {
	if err != nil {
		return err.Error()
	}
	return done
}

// statusOfAll asks every member itself. Its second result says which one did not answer, or does not vote.
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
			return all, fmt.Sprintf("member %s does not vote yet", nameOf(m))
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

// compareMembers asks each member for its list of members and for the hash of all that it holds at a revision that each has applied. An
// error is unknown, never equal.
func (r *round) compareMembers(ctx context.Context, view membership.View, all []membership.Status, nonce string) leases.UpgradeAnswer {
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
	switch membership.Compare(contents) {
	case membership.Same:
		a.Verdict, a.Revision, a.CompactRevision = leases.UpgradeAgree, revision, contents[0].CompactRevision
	case membership.Different:
		a.Verdict, a.Why = leases.UpgradeDiffer, differenceOf(view, contents)
	case membership.Incomparable:
		a.Why = "a compaction is under way, and its members cannot be compared before all of them have done it"
	}
	return a
}

// listsDiffer reports a list that differs from one that changed meanwhile. Each is read through raft. The leader and the member are
// read again, the leader first: a change that came and went between two looks at the leader shows in the member's second list.
func (r *round) listsDiffer(
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
		return leases.UpgradeUnknown, "the member list changed meanwhile"
	default:
		return leases.UpgradeDiffer, fmt.Sprintf("member %s lists other members than the leader does", nameOf(m))
	}
}

// heldBy asks one member for its list and for the hash, at the URLs that it published, and believes only that very member.
func (r *round) heldBy(ctx context.Context, clusterID uint64, m membership.Member, revision int64) (c membership.Content, v membership.View, err error) {
	if v, err = membership.Observe(ctx, r.Dial, membership.Query{Endpoints: m.ClientURLs[:1], ClusterID: clusterID, Timeout: callTimeout}); err != nil {
		return c, v, err
	}
	ctx, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	client, err := r.Dial(ctx, m.ClientURLs[0])
	if err != nil {
		return c, v, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	c, err = membership.ReadContent(ctx, client, m.ClientURLs[0], clusterID, revision)
	if err == nil && (c.MemberID != m.ID || v.Answerer != m.ID) {
		err = fmt.Errorf("%w: %s", membership.ErrOtherMember, leases.FormatID(c.MemberID))
	}
	return c, v, err
}

func differenceOf(view membership.View, contents []membership.Content) string {
	var words strings.Builder
	fmt.Fprintf(&words, "at revision %d, compacted at %d, hashes differ:", contents[0].Revision, contents[0].CompactRevision)
	for i, m := range view.Members {
		fmt.Fprintf(&words, " %s %08x", nameOf(m), contents[i].Hash)
	}
	return words.String()
}

func (r *round) announce(ctx context.Context, target string) (err error) {
	client, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	crash.Before("announce-downgrade")
	err = membership.EnableDowngrade(ctx, client, target)
	crash.After("announce-downgrade")
	if err != nil {
		return err
	}
	r.Log.WarnContext(ctx, "downgrade announced", "to", target)
	return nil
}

func (r *round) cancelDowngrade(ctx context.Context) (err error) {
	client, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	crash.Before("cancel-downgrade")
	err = membership.CancelDowngrade(ctx, client)
	crash.After("cancel-downgrade")
	if err != nil {
		return err
	}
	r.Log.WarnContext(ctx, "downgrade cancelled")
	return nil
}

// answerUpgrade writes the answer if the record is as it was read. One that lost to another write is found out again.
func (r *round) answerUpgrade(ctx context.Context, a leases.UpgradeAnswer) error {
	crash.Before("answer-upgrade")
	version, err := r.Store.AnswerUpgrade(ctx, r.version, a)
	crash.After("answer-upgrade")
	if err != nil {
		r.version = "" // read it again: someone else wrote, or we do not know whether we did
		if errors.Is(err, leases.ErrConflict) {
			return nil
		}
		return err
	}
	r.version, r.record.Upgrade.Answer = version, a
	r.Log.InfoContext(ctx, "members compared", "verdict", string(a.Verdict), "revision", a.Revision, "reason", a.Why)
	return nil
}
