package backups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestOneAgentVerifiesForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, verificationRules, func(f VerificationFacts, d rules.Decision[Verdict]) string {
		can := f.Turn == TurnOurs && f.Reported&(ReportedNever|ReportedVerified|ReportedBroken) != 0 && f.Resting == rules.No
		wanted := f.Reported == ReportedNever || f.Due == rules.Yes || f.Reported == ReportedBroken && f.Newer == rules.Yes
		switch {
		case d.Verdict == VerifyBackups && !(can && wanted):
			return "a proof that is not needed or not allowed"
		case d.Verdict == Wait && can && wanted:
			return "a proof is needed, and none is made"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "proofs", "Whether backups are verified now: "+verificationTable,
		"Asked by each agent once a minute. `reported`: what the full backups' Lease says of the last verification.", verificationRules, cases)
}

func TestOneMemberVerifies(t *testing.T) {
	all := []voter{{3, "c", nil}, {1, "a", nil}, {2, "b", nil}}
	for name, test := range map[string]struct {
		leader uint64
		voters []voter
		dead   map[uint64]bool
		want   map[uint64]Turn
	}{
		"the smallest follows":          {3, all, nil, map[uint64]Turn{1: TurnOurs, 2: TurnOthers, 3: TurnOthers, 9: TurnOthers}},
		"the smallest leads":            {1, all, nil, map[uint64]Turn{1: TurnOthers, 2: TurnOurs, 3: TurnOthers}},
		"the smallest is dead":          {3, all, map[uint64]bool{1: true}, map[uint64]Turn{2: TurnOurs, 3: TurnOthers}},
		"all followers are dead":        {3, all, map[uint64]bool{1: true, 2: true}, map[uint64]Turn{3: TurnOurs}},
		"alone":                         {1, all[1:2], nil, map[uint64]Turn{1: TurnOurs}},
		"a learner is not one of these": {1, all[1:2], map[uint64]bool{1: true}, map[uint64]Turn{7: TurnOthers}},
	} {
		for self, want := range test.want {
			if got := turnOf(self, test.leader, test.voters, func(v voter) bool { return !test.dead[v.id] }); got != want {
				t.Errorf("%s: for member %d it is %s, want %s", name, self, got, want)
			}
		}
	}
}

func TestWhatWasNotFoundOutLeavesWhatIsKnown(t *testing.T) {
	at, now := time.Unix(1_790_000_000, 0), time.Unix(1_790_100_000, 0)
	self := Identity{Lineage: lineage}
	verifiedBefore := leases.Verification{Verdict: leases.VerdictVerified, At: at, Full: "old", Revision: 5, Lineage: string(lineage),
		VerifiedFull: "old", Tried: at}
	broken := leases.Verification{Verdict: leases.VerdictBroken, At: at, Full: "old", Lineage: string(lineage), VerifiedFull: "older", Broken: "x",
		KnownBroken: []string{"x"}, Trouble: "why", Tried: at}
	elsewhere := verifiedBefore
	elsewhere.Lineage = "00000000-b"
	good := verify.Result{Verdict: verify.Verified, Full: "new", Revision: 9, Checkpoint: &verify.Checkpoint{Revision: 8}}
	bad := verify.Result{Verdict: verify.Broken, Full: "new", Object: "y", Reason: "torn"}
	none := verify.Result{Verdict: verify.Unknown, Full: "new", Reason: "no room"}
	change := func(v leases.Verification, change func(*leases.Verification)) leases.Verification {
		change(&v)
		return v
	}
	nowVerified := leases.Verification{Verdict: leases.VerdictVerified, At: now, Full: "new", Revision: 8, Lineage: string(lineage),
		VerifiedFull: "new", Tried: now}
	nowBroken := func(verifiedFull string) leases.Verification {
		return leases.Verification{Verdict: leases.VerdictBroken, At: now, Full: "new", Lineage: string(lineage), VerifiedFull: verifiedFull,
			Broken: "y", KnownBroken: []string{"y"}, Trouble: "torn", Tried: now}
	}
	knows := func(keys ...string) func(*leases.Verification) {
		return func(v *leases.Verification) { v.KnownBroken = keys }
	}
	tried := func(v *leases.Verification) { v.Tried, v.Trouble = now, "no room" }
	for name, test := range map[string]struct {
		before leases.Verification
		found  verify.Result
		old    bool
		want   leases.Verification
	}{
		"proven at last":                 {leases.Verification{}, good, true, nowVerified},
		"verified again":                 {verifiedBefore, good, false, nowVerified},
		"repaired":                       {broken, good, false, change(nowVerified, knows("x"))},
		"repaired, and known since long": {change(broken, knows("w", "x")), good, false, change(nowVerified, knows("w", "x"))},
		"proven after all":               {change(verifiedBefore, knows("new", "x")), good, false, change(nowVerified, knows("x"))},
		"broken, and the proven stay":    {verifiedBefore, bad, false, nowBroken("old")},
		"still broken":                   {broken, bad, false, change(nowBroken("older"), knows("x", "y"))},
		"not found out, never":           {leases.Verification{}, none, true, leases.Verification{Lineage: string(lineage), Tried: now, Trouble: "no room"}},
		"not found out, proven":          {verifiedBefore, none, false, change(verifiedBefore, tried)},
		"not found out for too long":     {verifiedBefore, none, true, change(verifiedBefore, func(v *leases.Verification) { tried(v); v.Verdict = "" })},
		"not found out, broken":          {broken, none, true, change(broken, func(v *leases.Verification) { v.Tried, v.KnownBroken = now, []string{"x"} })},
		"one of several is broken": {verifiedBefore,
			verify.Result{Verdict: verify.Broken, Full: "new", Object: "y", Suspects: []string{"y", "z"}, Reason: "torn"}, false, change(nowBroken("old"), knows())},
		"verified before, now suspect": {verifiedBefore,
			verify.Result{Verdict: verify.Broken, Full: "old", Object: "old", Suspects: []string{"old"}, Reason: "torn"}, false,
			change(nowBroken("old"), func(v *leases.Verification) { v.Full, v.Broken, v.KnownBroken = "old", "old", nil })},
		"another history before": {elsewhere, none, false, leases.Verification{Lineage: string(lineage), VerifiedFull: "old", Tried: now, Trouble: "no room"}},
	} {
		if diff := cmp.Diff(test.want, found(test.before, test.found, self, now, test.old), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestVerificationsComeBySchedule(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	daily := config.Verify{Schedule: "0 3 * * *"}
	for name, test := range map[string]struct {
		c     config.Verify
		since time.Time
		times int
		want  bool
	}{
		"today's was made":           {daily, noon.Add(-8 * time.Hour), 1, false},
		"today's was not":            {daily, noon.Add(-10 * time.Hour), 1, true},
		"two are missing":            {daily, noon.Add(-34 * time.Hour), 2, true},
		"one is missing, not two":    {daily, noon.Add(-10 * time.Hour), 2, false},
		"a clock that ran ahead":     {daily, noon.Add(time.Hour), 1, true},
		"a schedule that is none":    {config.Verify{Schedule: "x"}, noon.Add(-1000 * time.Hour), 1, false},
		"never":                      {daily, time.Time{}, 2, true},
		"in a time zone, not yet":    {config.Verify{Schedule: "30 13 * * *", TimeZone: "Europe/Berlin"}, noon.Add(-time.Hour), 1, false},
		"in a time zone, by now":     {config.Verify{Schedule: "0 13 * * *", TimeZone: "Europe/Berlin"}, noon.Add(-time.Hour), 1, true},
		"it would not have been UTC": {config.Verify{Schedule: "0 13 * * *"}, noon.Add(-time.Hour), 1, false},
	} {
		if got := verificationDue(test.c, test.since, noon, test.times); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

var errWaiting = errors.New("not yet")

// A follower verifies what the leader saves. An invalid backup is detected, named and followed by a new full backup,
// and retention never keeps only the invalid one.
func TestFollowerVerifiesWhatLeaderSaves(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 3)
	c := directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	var all []*neighbour
	for i := range g.members {
		a := agentOf(g, i)
		a.Scratch, a.verificationLook, a.verificationReserve = t.TempDir(), 100*time.Millisecond, 0
		a.Configure(c)
		background(t, a.VerifyBackups)
		background(t, func(ctx context.Context) error {
			return duties.WhileLeader(ctx, g.gate(i), raft, func(ctx context.Context) { _ = a.Run(ctx) })
		})
		all = append(all, a)
	}
	lead := g.leader()
	reported := all[lead].Leases
	s := opened(t, c)
	savedUpTo(t, s, put(t, g.client(lead), 20))
	verified := func(want func(leases.Verification) bool) (v leases.Verification) {
		eventually(t, "the Lease reports", func() (err error) {
			if _, v, err = reported.Full(t.Context()); err == nil && !want(v) {
				err = fmt.Errorf("%w: %+v", errWaiting, v)
			}
			return err
		})
		return v
	}
	isVerified := func(v leases.Verification) bool { return v.Verdict == leases.VerdictVerified }
	v := verified(isVerified)
	if v.VerifiedFull != history(t, s).Fulls[0].Key || v.Revision == 0 || v.Trouble != "" {
		t.Errorf("reported is %+v", v)
	}
	prover := 0 // the first that does not lead
	if lead == 0 {
		prover = 1
	}
	for i, a := range all {
		if n := testutil.ToFloat64(a.Metrics.verifications.WithLabelValues("Verified")); i == prover && n == 0 || i == lead && n > 0 {
			t.Errorf("member %d, where %d leads, proved %v times", i, lead, n)
		}
		if left, err := os.ReadDir(a.Scratch); err != nil || len(left) > 0 {
			t.Errorf("the scratch directory of member %d has %v, %v", i, left, err)
		}
	}

	full := history(t, s).Fulls[0]
	damage(t, s, full.Key)
	v.At = v.At.Add(-48 * time.Hour)
	v.Tried = v.At
	if err := reported.ReportVerification(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	v = verified(func(v leases.Verification) bool { return v.Broken == full.Key || v.VerifiedFull != full.Key })
	eventually(t, "a new full follows", func() error {
		if n := len(history(t, s).Fulls); n < 2 || all[lead].fired("found-broken") == 0 {
			return fmt.Errorf("%w: %d fulls; %+v", errWaiting, n, v)
		}
		return nil
	})
	v = verified(func(v leases.Verification) bool { return isVerified(v) && v.VerifiedFull != full.Key })
	if v.Broken != "" || v.Full != history(t, s).Fulls[1].Key {
		t.Errorf("reported is %+v", v)
	}
}

// TestVerificationRetriedWhenStoreBack: a verification that the store was away for is made when it is back.
// A verification does not wait for an hour after the store responds again.
func TestVerificationRetriedWhenStoreBack(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	server := bucket.Start(t)
	proxy := server.Before(t)
	c := inBucket(t, proxy.Endpoint, server.Make(t, "proofs", false))
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	a := agentOf(g, 0)
	a.Scratch, a.verificationLook, a.verificationReserve = t.TempDir(), 100*time.Millisecond, 0
	a.Configure(c)
	a.start()
	savedUpTo(t, opened(t, c), put(t, g.client(0), 20))
	verified := func(what string, want func(leases.Verification) bool) {
		eventually(t, what, func() error {
			_, v, err := a.Leases.Full(t.Context())
			if err == nil && !want(v) {
				err = fmt.Errorf("%w: %+v", errWaiting, v)
			}
			return err
		})
	}
	proxy.Break(func(string, *http.Request) bucket.Fault { return bucket.Answer(http.StatusForbidden, "AccessDenied") })
	background(t, a.VerifyBackups)
	verified("what hinders is reported", func(v leases.Verification) bool { return strings.Contains(v.Trouble, "denied") && !v.Tried.IsZero() })
	proxy.Break(nil)
	verified("it is verified", func(v leases.Verification) bool { return v.Verdict == leases.VerdictVerified && v.Trouble == "" })
	if n := testutil.ToFloat64(a.Metrics.verifications.WithLabelValues("Unknown")); n < 1 || n > 3 { // again only where the Lease could not be reported
		t.Errorf("%v attempts while the store was away, want 1", n)
	}
}

// TestVerificationKeepsNewerVerdict: a verification keeps a verdict that came meanwhile.
// A verification does not overwrite a verdict about a newer full backup that was written while it ran.
func TestVerificationKeepsNewerVerdict(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	a := agentOf(g, 0)
	a.Scratch, a.verificationLook, a.verificationReserve = t.TempDir(), 100*time.Millisecond, 0
	a.Configure(c)
	a.start()
	s := opened(t, c)
	savedUpTo(t, s, put(t, g.client(0), 20))
	full := history(t, s).Fulls[0].Key
	var self Identity
	eventually(t, "the agent knows its member", func() (err error) {
		var known bool
		if self, known = a.Self(); !known {
			err = errWaiting
		}
		return err
	})
	open := a.Open
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		newer := leases.Verification{Verdict: leases.VerdictBroken, At: time.Now(), Full: full + ".newer", Lineage: string(self.Lineage), Broken: full,
			Tried: time.Now()}
		if err := a.Leases.ReportVerification(ctx, newer); err != nil {
			return nil, err
		}
		return open(ctx, c)
	}
	a.verifyBackups(t.Context(), *c, self, leases.Verification{})
	_, v, err := a.Leases.Full(t.Context())
	if err != nil || v.Verdict != leases.VerdictBroken || v.Full != full+".newer" || v.VerifiedFull != full {
		t.Errorf("the Lease has %+v, %v", v, err)
	}
}

// damage flips a bit of an object.
func damage(t *testing.T, s store.Store, key string) {
	t.Helper()
	body, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	content[len(content)/2] ^= 1
	if _, err := s.Put(t.Context(), key, bytes.NewReader(content), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}
