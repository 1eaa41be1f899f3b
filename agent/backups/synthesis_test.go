package backups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/proof"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/synthesis"
	"github.com/etcd-druid/druid/leases"
)

func TestAFullIsSynthesizedOfALongChainOfOurs(t *testing.T) {
	full := func(l chain.Lineage, revision int64) chain.Full {
		return chain.Full{Lineage: l, Key: chain.FullKey(prefix, l, revision, time.UnixMilli(1)), Revision: revision}
	}
	deltas := []chain.Delta{{From: 11, To: 15, Size: 100}, {From: 16, To: 30, Size: 200}}
	for name, test := range map[string]struct {
		l         chain.Lineage
		threshold synthesis.Threshold
		full      int64
		want      Length
	}{
		"nobody wants it":        {lineage, synthesis.Threshold{}, 10, LengthShort},
		"more revisions":         {lineage, synthesis.Threshold{Revisions: 19, Bytes: 1000}, 10, LengthLong},
		"as many revisions":      {lineage, synthesis.Threshold{Revisions: 20, Bytes: 1000}, 10, LengthShort},
		"more bytes":             {lineage, synthesis.Threshold{Revisions: 1000, Bytes: 299}, 10, LengthLong},
		"as many bytes":          {lineage, synthesis.Threshold{Bytes: 300}, 10, LengthShort},
		"nothing leads there":    {lineage, synthesis.Threshold{Bytes: 1}, 5, LengthUnknown},
		"of another's, its fork": {"00000009-ff", synthesis.Threshold{Bytes: 1}, 10, LengthShort},
	} {
		t.Run(name, func(t *testing.T) {
			h := chain.History{Lineage: lineage, Birth: &chain.Birth{Lineage: lineage}, Fulls: []chain.Full{full(lineage, test.full)}}
			for _, d := range deltas {
				d.Lineage, d.Key = lineage, chain.DeltaKey(prefix, lineage, d.From, d.To, time.UnixMilli(2))
				h.Deltas = append(h.Deltas, d)
			}
			c := chain.Catalog{Prefix: prefix, Histories: []chain.History{h}}
			if test.l != lineage {
				c.Histories = append(c.Histories, chain.History{Lineage: test.l, Birth: &chain.Birth{Lineage: test.l, Parent: lineage, Fork: 30}})
			}
			if got := lengthOf(c, test.l, test.threshold); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}

func TestAFindingIsSaidOfAFullThatEtcdSent(t *testing.T) {
	key := func(revision int64) string { return chain.FullKey(prefix, lineage, revision, time.UnixMilli(1)) }
	made := func(origin int64) string {
		return chain.SynthesisKey(prefix, lineage, 30, origin, time.UnixMilli(2))
	}
	h := chain.History{Lineage: lineage}
	for _, revision := range []int64{10, 20} {
		h.Fulls = append(h.Fulls, chain.Full{Lineage: lineage, Key: key(revision), Revision: revision})
	}
	c, nothing := chain.Catalog{Prefix: prefix, Histories: []chain.History{h}}, chain.Catalog{Prefix: prefix}
	for name, test := range map[string]struct {
		c    chain.Catalog
		r    proof.Result
		want string
	}{
		"one that etcd sent":                   {c, proof.Result{Verdict: proof.Broken, Full: key(10)}, key(10)},
		"one that was made of it":              {c, proof.Result{Verdict: proof.Broken, Full: made(10)}, key(10)},
		"proven, one that was made of it":      {c, proof.Result{Verdict: proof.Proven, Full: made(20)}, key(20)},
		"broken, one that was made of another": {c, proof.Result{Verdict: proof.Broken, Full: made(15)}, key(20)},
		"proven, one that was made of another": {c, proof.Result{Verdict: proof.Proven, Full: made(15)}, made(15)},
		"nothing was planned":                  {c, proof.Result{Verdict: proof.Broken}, key(20)},
		"nothing is there":                     {nothing, proof.Result{Verdict: proof.Broken, Full: made(10)}, made(10)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := saidOf(test.r, test.c, lineage); got != test.want {
				t.Errorf("it is said of %s, want %s", got, test.want)
			}
		})
	}
}

// A long chain gets a full that restores begin with, and that changes nothing of what is saved. When it breaks, that is found,
// and a new full takes its place.
func TestWhatIsProvenIsPutIntoTheStoreAsAFull(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	c.Full.Synthesize = &config.Synthesize{AfterRevisions: 10}
	a := agentOf(g, 0)
	a.Scratch, a.proofLook, a.lengthLook, a.proofReserve = t.TempDir(), 100*time.Millisecond, 100*time.Millisecond, 0
	a.Configure(c)
	background(t, a.Prove)
	background(t, func(ctx context.Context) error {
		return leader.WhileLeader(ctx, g.gate(0), raft, func(ctx context.Context) { _ = a.Run(ctx) })
	})
	s := opened(t, c)
	savedUpTo(t, s, put(t, g.client(0), 5))
	verified := func(want func(leases.Verification) bool) {
		eventually(t, "the Lease tells", func() error {
			_, v, err := a.Leases.Full(t.Context())
			if err == nil && !want(v) {
				err = fmt.Errorf("%w: %+v", errWaiting, v)
			}
			return err
		})
	}
	verified(func(v leases.Verification) bool { return v.Verdict == leases.VerdictProven })
	taken := history(t, s).Fulls[0]
	last := put(t, g.client(0), 20)
	savedUpTo(t, s, last)
	var made chain.Full
	eventually(t, "a full is synthesised", func() error {
		h := history(t, s)
		// It is counted once it was read back, and left alone until then.
		counted := testutil.ToFloat64(a.Metrics.objects.WithLabelValues(kindSynthesis))
		if n := len(h.Synthesized); n == 0 || h.Synthesized[n-1].Revision+10 < last || int(counted) < n {
			return fmt.Errorf("%w: %+v, %v counted", errWaiting, h.Synthesized, counted)
		}
		made = h.Synthesized[len(h.Synthesized)-1]
		return nil
	})
	if n := len(history(t, s).Fulls); n != 1 || made.Origin != taken.Revision {
		t.Errorf("made is %+v, of %d fulls, the first %+v", made, n, taken)
	}
	if testutil.ToFloat64(a.Metrics.decisions.WithLabelValues("proof", "chain-long")) == 0 {
		t.Error("rule chain-long never fired")
	}
	proven(t, s, g.client(0), last)

	harm(t, s, made.Key)
	eventually(t, "a new full follows", func() error {
		// Again and again: the proof that went before may be told after that.
		if _, v, err := a.Leases.Full(t.Context()); err != nil {
			return err
		} else if v.Verdict == leases.VerdictProven && v.Full == taken.Key && time.Since(v.At) < 24*time.Hour {
			v.At = v.At.Add(-48 * time.Hour)
			v.Tried = v.At
			return errors.Join(errWaiting, a.Leases.TellVerification(t.Context(), v))
		}
		if n := len(history(t, s).Fulls); n < 2 || a.fired("disproved") == 0 {
			return fmt.Errorf("%w: %d fulls", errWaiting, n)
		}
		return nil
	})
	verified(func(v leases.Verification) bool {
		return v.Verdict == leases.VerdictProven && v.Full == history(t, s).Fulls[1].Key
	})
	h := history(t, s)
	p, err := chain.Catalog{Prefix: prefix, Histories: []chain.History{h}}.Plan(chain.Target{})
	if err != nil || p.Full.Key == made.Key {
		t.Errorf("the plan begins with %s, %v", p.Full.Key, err)
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
