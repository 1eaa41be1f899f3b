package druid

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// Secrets of others have all names of the next authority. You learn it, and the replacement continues when one of them is gone.
func TestSecretsOfOthersBlockAnAuthority(t *testing.T) {
	r := newRotation(t)
	p := manifests.PlaneClient
	first := r.plane(p).Authority
	for generation := int32(2); generation < 2+maxSkipped; generation++ {
		foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: manifests.AuthorityName("demo", p, generation)}}
		if err := r.Create(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
	}
	degraded := func() string {
		c := meta.FindStatusCondition(r.cluster().Status.Conditions, v1alpha1.ConditionDegraded)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonObjectNotOwned {
			return ""
		}
		return c.Message
	}
	if message := degraded(); message != "" {
		t.Fatalf("before a replacement, Degraded says %q", message)
	}
	r.annotate("client:1")
	r.look()
	r.look()
	if message := degraded(); !strings.Contains(message, "Secrets demo-client-ca-2 to demo-client-ca-9 exist") || r.plane(p).Authority != first {
		t.Errorf("Degraded says %q, and authority %s signs, which was %s", message, r.plane(p).Authority, first)
	}
	r.deleteSecret(manifests.AuthorityName("demo", p, 5))
	r.at = r.at.Add(certificatesPause)
	r.until(p, func(s v1alpha1.TLSPlaneStatus) bool { return s.Phase == v1alpha1.TLSStable && s.Authority != first })
	if message := degraded(); message != "" {
		t.Errorf("after the replacement, Degraded says %q", message)
	}
}
