package druid

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// observed is what the druid sees of demo after it adopted the spec as it is.
func (s *stage) observed(r *Reconciler) *observation {
	s.Helper()
	cluster := &v1alpha1.EtcdCluster{}
	if err := s.fetch("demo", cluster); err != nil {
		s.Fatal(err)
	}
	for {
		o, err := r.observe(s.Context(), r.cached, cluster, nil)
		if err != nil {
			s.Fatal(err)
		}
		if o.lock.adoption.Rule == "" {
			return o
		}
		if cluster, err = r.adopt(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// cluster is demo as it is.
func (s *stage) cluster() *v1alpha1.EtcdCluster {
	s.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		s.Fatal(err)
	}
	return &cluster
}

// patchStatus does what `kubectl patch --subresource=status` does.
func (s *stage) patchStatus(patch string) {
	s.Helper()
	if err := s.Status().Patch(s.Context(), s.newCluster("demo", 1), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// deadline moves the deadline to that of the test's clock, and what is added to it.
func (c *clocked) deadline(after time.Duration) {
	c.Helper()
	c.patchStatus(`{"status":{"progressDeadline":"` + c.at.Add(after).UTC().Format(time.RFC3339) + `"}}`)
}

// adopted fails unless the status answers the spec as it is, or, with pending, the one before.
func (c *clocked) adopted(pending bool) {
	c.Helper()
	is := c.cluster()
	if waits := is.Status.ObservedGeneration != is.Generation; waits != pending {
		c.Fatalf("generation %d, observed %d, want that the edit waits: %t; Progressing is %+v", is.Generation, is.Status.ObservedGeneration, pending, c.progressing())
	}
}

// stands fails unless Progressing has the reason.
func (c *clocked) stands(reason string) {
	c.Helper()
	if p := c.progressing(); p.Reason != reason {
		c.Fatalf("Progressing is %+v, want %s", p, reason)
	}
}
