package druid

import "github.com/etcd-druid/druid/api/v1alpha1"

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
