package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/proof"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

func TestAnOrderedBackupCountsAsSavedWhenItIsProven(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	path := t.TempDir()
	c := directory(path)
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	a.Scratch, a.proofReserve, a.verifyPause = t.TempDir(), 0, 10*time.Millisecond
	background(t, a.Obey)
	a.Configure(c)
	a.start()

	last := put(t, client, 5)
	o.orderKind(fullLease, "good", leases.SnapshotVerified)
	answer := o.answered(fullLease, "good", leases.SnapshotSucceeded)
	if answer.Kind != leases.SnapshotVerified || answer.Revision < last || answer.Size != object(t, s, answer.Object) {
		t.Errorf("answered %+v after revision %d", answer, last)
	}
	if left, err := os.ReadDir(a.Scratch); err != nil || len(left) != 0 {
		t.Errorf("the scratch directory holds %v, %v", left, err)
	}
	o.orderKind(fullLease, "last", leases.SnapshotFinalVerified)
	if answer := o.answered(fullLease, "last", leases.SnapshotSucceeded); answer.Object != "" && !strings.Contains(answer.Object, "final") {
		t.Errorf("answered %+v, want a final full", answer)
	}

	// From now on what the store returns of a full is not what was put into it.
	opens := a.Open
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := opens(ctx, c)
		return damaging{s}, err
	}
	before := len(history(t, s).Fulls)
	o.orderKind(fullLease, "bad", leases.SnapshotVerified)
	answer = o.answered(fullLease, "bad", leases.SnapshotFailed)
	fulls := history(t, s).Fulls
	if len(fulls) <= before {
		t.Fatalf("%d fulls, had %d", len(fulls), before)
	}
	bad := fulls[before].Key
	if !strings.Contains(answer.Error, bad) || !strings.Contains(answer.Error, "not verified") {
		t.Errorf("answered %q, want %s in it", answer.Error, bad)
	}
	eventually(t, "the Lease reports what is broken, and a new full is made", func() error {
		_, v, err := a.Leases.Full(t.Context())
		if fulls := history(t, s).Fulls; err != nil || v.Verdict != leases.VerdictBroken || v.Broken != bad || len(fulls) < before+2 {
			return fmt.Errorf("it reports %+v, %w, next to %d fulls", v, err, len(fulls))
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(path, bad)); err != nil {
		t.Errorf("what is broken is gone: %v", err)
	}
}

// damaging flips a bit in the middle of each full that is read.
type damaging struct{ store.Store }

func (d damaging) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := d.Store.Get(ctx, key, offset, length)
	if err != nil || !strings.Contains(key, "/full/") || offset != 0 || length >= 0 {
		return body, err
	}
	raw, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	raw[len(raw)/2] ^= 1
	return io.NopCloser(strings.NewReader(string(raw))), nil
}

// An agent that leads no more must not wait for another proof: it would hold the leader's Lease as long.
func TestWhoWaitsForAnotherProofHeedsItsEnd(t *testing.T) {
	t.Parallel()
	d := New(Options{})
	d.proving <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan proof.Result, 1)
	background(t, func(context.Context) error {
		done <- d.proveTarget(ctx, config.Backup{}, Identity{}, chain.Target{})
		return nil
	})
	select {
	case r := <-done:
		if r.Verdict != proof.Unknown || !strings.Contains(r.Reason, "another backup is proven") {
			t.Errorf("found %+v", r)
		}
	case <-time.After(time.Minute):
		<-d.proving
		t.Error("it waits for the other proof")
	}
}
