package backups

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/bucket"
)

// A follower proves what the leader saves. What breaks is found, named and followed by a new full, and what retention keeps
// is never the broken one alone.
func TestAFollowerProvesWhatTheLeaderSaves(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 3)
	c := directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	var all []*neighbour
	for i := range g.members {
		a := agentOf(g, i)
		a.Scratch, a.proofLook, a.proofReserve = t.TempDir(), 100*time.Millisecond, 0
		a.Configure(c)
		background(t, a.Prove)
		background(t, func(ctx context.Context) error {
			return leader.WhileLeader(ctx, g.gate(i), raft, func(ctx context.Context) { _ = a.Run(ctx) })
		})
		all = append(all, a)
	}
	lead := g.leader()
	notified := all[lead].Leases
	s := opened(t, c)
	savedUpTo(t, s, put(t, g.client(lead), 20))
	verified := func(want func(leases.Verification) bool) (v leases.Verification) {
		eventually(t, "the Lease reports", func() (err error) {
			if _, v, err = notified.Full(t.Context()); err == nil && !want(v) {
				err = fmt.Errorf("%w: %+v", errWaiting, v)
			}
			return err
		})
		return v
	}
	proven := func(v leases.Verification) bool { return v.Verdict == leases.VerdictProven }
	v := verified(proven)
	if v.ProvenFull != history(t, s).Fulls[0].Key || v.Revision == 0 || v.Trouble != "" {
		t.Errorf("reported is %+v", v)
	}
	prover := 0 // the first that does not lead
	if lead == 0 {
		prover = 1
	}
	for i, a := range all {
		if n := testutil.ToFloat64(a.Metrics.proofs.WithLabelValues("Proven")); i == prover && n == 0 || i == lead && n > 0 {
			t.Errorf("member %d, where %d leads, proved %v times", i, lead, n)
		}
		if left, err := os.ReadDir(a.Scratch); err != nil || len(left) > 0 {
			t.Errorf("the scratch directory of member %d has %v, %v", i, left, err)
		}
	}

	full := history(t, s).Fulls[0]
	harm(t, s, full.Key)
	v.At = v.At.Add(-48 * time.Hour)
	v.Tried = v.At
	if err := notified.ReportVerification(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	v = verified(func(v leases.Verification) bool { return v.Broken == full.Key || v.ProvenFull != full.Key })
	eventually(t, "a new full follows", func() error {
		if n := len(history(t, s).Fulls); n < 2 || all[lead].fired("disproved") == 0 {
			return fmt.Errorf("%w: %d fulls; %+v", errWaiting, n, v)
		}
		return nil
	})
	v = verified(func(v leases.Verification) bool { return proven(v) && v.ProvenFull != full.Key })
	if v.Broken != "" || v.Full != history(t, s).Fulls[1].Key {
		t.Errorf("reported is %+v", v)
	}
}

// No one waits for an hour for a store that is back.
func TestAProofThatTheStoreWasAwayForIsMadeWhenItIsBack(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	server := bucket.Start(t)
	proxy := server.Before(t)
	c := inBucket(t, proxy.Endpoint, server.Make(t, "proofs", false))
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	a := agentOf(g, 0)
	a.Scratch, a.proofLook, a.proofReserve = t.TempDir(), 100*time.Millisecond, 0
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
	background(t, a.Prove)
	verified("what hinders is reported", func(v leases.Verification) bool { return strings.Contains(v.Trouble, "denied") && !v.Tried.IsZero() })
	proxy.Break(nil)
	verified("it is proven", func(v leases.Verification) bool { return v.Verdict == leases.VerdictProven && v.Trouble == "" })
	if n := testutil.ToFloat64(a.Metrics.proofs.WithLabelValues("Unknown")); n < 1 || n > 3 { // again only where the Lease could not be reported
		t.Errorf("%v attempts while the store was away, want 1", n)
	}
}

// A verdict about a newer full backup that is written while a verification runs is not overwritten by it.
func TestAVerificationKeepsAVerdictThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	a := agentOf(g, 0)
	a.Scratch, a.proofLook, a.proofReserve = t.TempDir(), 100*time.Millisecond, 0
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
		newer := leases.Verification{Verdict: leases.VerdictBroken, At: time.Now(), Full: full + ".newer", Lineage: string(self.Lineage), Broken: full, Tried: time.Now()}
		if err := a.Leases.ReportVerification(ctx, newer); err != nil {
			return nil, err
		}
		return open(ctx, c)
	}
	a.prove(t.Context(), *c, self, leases.Verification{})
	_, v, err := a.Leases.Full(t.Context())
	if err != nil || v.Verdict != leases.VerdictBroken || v.Full != full+".newer" || v.ProvenFull != full {
		t.Errorf("the Lease has %+v, %v", v, err)
	}
}

// harm changes a bit of an object.
func harm(t *testing.T, s store.Store, key string) {
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
