package druid

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

func TestOwnStatusIsReadBeforeTheCachesHaveIt(t *testing.T) {
	at := func(version string) *v1alpha1.EtcdCluster {
		return &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo", ResourceVersion: version}}
	}
	tests := map[string]struct {
		do           func(*statuses)
		cached, want string
	}{
		"nothing was written":                   {func(*statuses) {}, "1", "1"},
		"the caches are behind":                 {func(s *statuses) { s.wrote("1", at("2")) }, "1", "2"},
		"the caches have it":                    {func(s *statuses) { s.wrote("1", at("2")) }, "2", "2"},
		"the caches are two writes behind":      {func(s *statuses) { s.wrote("1", at("2")); s.wrote("2", at("3")) }, "1", "3"},
		"the caches are one of two behind":      {func(s *statuses) { s.wrote("1", at("2")); s.wrote("2", at("3")) }, "2", "3"},
		"someone else wrote after it":           {func(s *statuses) { s.wrote("1", at("2")) }, "5", "5"},
		"someone else wrote between two writes": {func(s *statuses) { s.wrote("1", at("2")); s.wrote("5", at("6")) }, "5", "6"},
		"once the caches had it, it is over":    {func(s *statuses) { s.wrote("1", at("2")); s.latest(at("2")) }, "1", "1"},
		"it is gone": {func(s *statuses) {
			s.wrote("1", at("2"))
			s.forget(client.ObjectKeyFromObject(at("2")))
		}, "1", "1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStatuses()
			test.do(s)
			if got := s.latest(at(test.cached)); got.ResourceVersion != test.want {
				t.Errorf("with version %s in the caches: got %s, want %s", test.cached, got.ResourceVersion, test.want)
			}
		})
	}
}
