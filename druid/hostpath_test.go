package druid

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// allowHostPath sets or removes the label of the namespace with which druid may mount directories of the nodes.
func (s *stage) allowHostPath(allowed bool) {
	s.Helper()
	namespace := corev1ac.Namespace(s.namespace)
	if allowed {
		namespace.WithLabels(map[string]string{v1alpha1.LabelAllowHostPath: "true"})
	}
	if err := s.Apply(s.Context(), namespace, client.FieldOwner("host-path")); err != nil {
		s.Fatal(err)
	}
}

// Where the policies refuse a directory of the node, the user and the condition Degraded get the command that allows it.
func TestRefusedHostPathSaysWhatToDo(t *testing.T) {
	s := newStage(t)
	s.node(s.nodeName(), true)
	allows := "kubectl label ns " + s.namespace + " etcd.druid.dev/allow-host-path=true"
	onHost := func(name string) *v1alpha1.EtcdCluster {
		cluster := s.newCluster(name, 1)
		cluster.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: "/srv/backups"}}}
		return cluster
	}
	answers := func(what, says string) {
		t.Helper()
		s.answers(what, says, func() error { return s.Create(t.Context(), onHost("probe"), client.DryRunAll) })
	}
	answers("the policy is in effect", allows)
	s.allowHostPath(true)
	answers("the label allows it", "")
	if err := s.Create(t.Context(), onHost("demo")); err != nil {
		t.Fatal(err)
	}
	s.allowHostPath(false)
	answers("the label is removed", allows)
	c := s.clockedQuiet()
	if err := c.try(); err == nil {
		t.Error("the refusal of the Pod is not reported")
	}
	if d := c.degraded(t); d.Reason != v1alpha1.ReasonAPIRequestRejected || !strings.Contains(d.Message, allows) {
		t.Errorf("condition Degraded says %s: %s, want %q in it", d.Reason, d.Message, allows)
	}
	s.allowHostPath(true)
	answers("the label allows it again", "")
	c.pass()
	if err := c.fetch(c.members("demo", 1)[0], &corev1.Pod{}); err != nil {
		t.Errorf("the Pod does not come: %v", err)
	}
}
