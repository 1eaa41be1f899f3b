package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/leases"
)

func TestAttemptThatAnotherClaimedIsStoppedAndGoesAside(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a")
	seed := c.members["c-a"]
	b := seed.boot()
	order := seed.next(b)
	record, version := c.record()
	lost := record.Lineage
	record.Nonce, record.Executor = "another", "pod-other"
	record.Lineage = leases.LineageOf(record.Epoch, record.Nonce)
	if _, err := c.store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Fatal(err)
	}
	etcd := seed.etcdAlone(order)
	stopped := false
	err := b.Settle(t.Context(), func(context.Context, string) error {
		stopped = true
		return etcd()
	})
	if !errors.Is(err, ErrAttemptLost) || !stopped {
		t.Fatalf("settle: %v, stopped %t", err, stopped)
	}
	if stamp, _ := b.Identity(); stamp.Formed || stamp.Lineage != lost {
		t.Errorf("the stamp says %+v", stamp)
	}
	// The record still makes this member the seed: it claims an attempt of its own, under a token of its own.
	seed.start()
	c.voters("c-a")
	c.eventually("the cluster is recorded", func() error {
		if record, _ := c.record(); record.Phase != leases.PhaseFormed || record.Lineage == lost || record.Nonce == "another" {
			return fmt.Errorf("the record says %+v", record)
		}
		return nil
	})
}

func TestASupersededPodRecordsNoCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a")
	seed := c.members["c-a"]
	b := seed.boot()
	etcd := seed.etcdAlone(seed.next(b))
	defer func() { _ = etcd() }()
	c.eventually("the seed's etcd serves", func() error { _, err := c.view("c-a"); return err })
	names := func(pod string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, leases.AnnotationPodUID, pod)
		if _, err := c.leases.Patch(t.Context(), "c-a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	names("successor")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := b.Settle(ctx, func(context.Context, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if record, _ := c.record(); record.Phase != leases.PhaseForming {
		t.Errorf("a Pod that another one follows recorded %+v", record)
	}
	names("pod-c-a")
	if err := b.Settle(t.Context(), func(context.Context, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if record, _ := c.record(); record.Phase != leases.PhaseFormed {
		t.Errorf("the Pod that the Lease names recorded %+v", record)
	}
}
