package harness

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// Cluster is an EtcdCluster in a namespace of its own.
type Cluster struct {
	Rig             *Rig
	Namespace, Name string

	dialer *memberDialer
	dumped atomic.Bool
	// secure says that clients use TLS, by the Secret of connection.
	secure     bool
	connection connection
}

// Option changes an EtcdCluster before it is applied.
type Option func(*v1alpha1.EtcdCluster)

// Replicas sets spec.replicas.
func Replicas(n int32) Option { return func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = n } }

// Version sets spec.version.
func Version(v string) Option { return func(c *v1alpha1.EtcdCluster) { c.Spec.Version = v } }

// StorageClass sets spec.storage.storageClassName.
func StorageClass(name string) Option {
	return func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.StorageClassName = &name }
}

// Image sets spec.image.
func Image(image string) Option { return func(c *v1alpha1.EtcdCluster) { c.Spec.Image = image } }

// Named sets metadata.name.
func Named(name string) Option { return func(c *v1alpha1.EtcdCluster) { c.Name = name } }

// Definition is an EtcdCluster as a user would write it: three members on a gigabyte of node-local disk each.
func Definition(namespace string, options ...Option) *v1alpha1.EtcdCluster {
	class := lab.LocalClass
	c := &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd"},
		Spec: v1alpha1.EtcdClusterSpec{
			Replicas: 3,
			Storage:  v1alpha1.StorageSpec{Size: resource.MustParse("1Gi"), StorageClassName: &class},
		},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

// Apply creates an EtcdCluster in a namespace of its own. At the end of the test the namespace goes, after all that can
// be known about it was written down if the test failed.
func (r *Rig) Apply(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	return r.ApplyIn(t, r.MakeNamespace(t), options...)
}

// ApplyIn creates an EtcdCluster in a namespace that the test has made.
func (r *Rig) ApplyIn(t testing.TB, namespace string, options ...Option) *Cluster {
	t.Helper()
	definition := Definition(namespace, options...)
	c := r.Expect(t, namespace, definition.Name)
	c.secure = definition.Spec.TLS != nil && definition.Spec.TLS.Client != nil
	if err := r.Client.Create(t.Context(), definition); err != nil {
		t.Fatalf("create EtcdCluster %s: %v", c, err)
	}
	return c
}

// Expect speaks of an EtcdCluster that a command of the test creates. It is written down if the test fails.
func (r *Rig) Expect(t testing.TB, namespace, name string) *Cluster {
	t.Helper()
	c := r.Attach(namespace, name)
	c.dumpAtTheEnd(t)
	return c
}

// Attach speaks of an EtcdCluster that exists.
func (r *Rig) Attach(namespace, name string) *Cluster {
	c := &Cluster{Rig: r, Namespace: namespace, Name: name}
	c.dialer = newMemberDialer(c)
	c.connection.cluster = c
	return c
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// MakeNamespace makes a namespace for the test with Pod Security "restricted" enforced, and deletes it at the end.
func (r *Rig) MakeNamespace(t testing.TB) string {
	t.Helper()
	base := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	base = strings.Trim(base[:min(len(base), 30)], "-")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   base + "-" + rand.String(5),
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := r.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create namespace %s: %v", ns.Name, err)
	}
	t.Cleanup(func() { r.deleteNamespace(t, ns.Name) })
	return ns.Name
}

// Destroy deletes the cluster's namespace and waits until nothing of it runs, for what is measured next.
func (c *Cluster) Destroy(t testing.TB) {
	t.Helper()
	DestroyNamespace(t, c.Rig, c.Namespace)
}

// DestroyNamespace deletes a namespace and waits until nothing of it is left.
func DestroyNamespace(t testing.TB, r *Rig, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.Client.Delete(t.Context(), ns); err != nil {
		t.Fatalf("delete namespace %s: %v", name, err)
	}
	Eventually(t, 2*maxWait, "the end of namespace "+name, func(ctx context.Context) error {
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("phase %s", ns.Status.Phase))
	})
}

// deleteNamespace does not wait: the next test shall not pay for this one's Pods.
func (r *Rig) deleteNamespace(t testing.TB, name string) {
	t.Helper()
	if r.keep {
		return
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := poll(context.WithoutCancel(t.Context()), maxWait, func(ctx context.Context) error {
		return client.IgnoreNotFound(r.Client.Delete(ctx, ns))
	})
	if err != nil {
		t.Errorf("delete namespace %s: %v", name, err)
	}
}

func (c *Cluster) String() string { return c.Namespace + "/" + c.Name }

// Get reads the EtcdCluster.
func (c *Cluster) Get(ctx context.Context) (*v1alpha1.EtcdCluster, error) {
	out := &v1alpha1.EtcdCluster{}
	err := c.Rig.Client.Get(ctx, Key(c.Namespace, c.Name), out)
	return out, err
}

// Scale sets spec.replicas.
func (c *Cluster) Scale(t testing.TB, replicas int32) {
	t.Helper()
	c.Edit(t, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// Edit merges a patch into the EtcdCluster.
func (c *Cluster) Edit(t testing.TB, patch string) {
	t.Helper()
	target := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	if err := c.Rig.Client.Patch(t.Context(), target, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatalf("patch %s with %s: %v", c, patch, err)
	}
}

// Lease reads one of the cluster's Leases.
func (c *Cluster) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{}
	err := c.Rig.Client.Get(ctx, Key(c.Namespace, name), out)
	return out, err
}

// Record reads the cluster record.
func (c *Cluster) Record(ctx context.Context) (leases.Record, error) {
	lease, err := c.Lease(ctx, leases.RecordName(c.Name))
	if err != nil {
		return leases.Record{}, err
	}
	return leases.DecodeRecord(lease)
}

// Member reads a member's Lease.
func (c *Cluster) Member(ctx context.Context, name string) (leases.Member, error) {
	lease, err := c.Lease(ctx, name)
	if err != nil {
		return leases.Member{}, err
	}
	return leases.DecodeMember(lease)
}

// MemberNames are the names in the cluster record, sorted.
func (c *Cluster) MemberNames(t testing.TB) []string {
	t.Helper()
	var names []string
	Eventually(t, maxWait, "the record of "+c.String(), func(ctx context.Context) error {
		record, err := c.Record(ctx)
		names = slices.Sorted(slices.Values(record.Members))
		return err
	})
	return names
}

// Pod reads a member's Pod.
func (c *Cluster) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	out := &corev1.Pod{}
	err := c.Rig.Client.Get(ctx, Key(c.Namespace, name), out)
	return out, err
}

// MustPod reads a member's Pod, which must exist.
func (c *Cluster) MustPod(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	Eventually(t, maxWait, "Pod "+name, func(ctx context.Context) (err error) {
		pod, err = c.Pod(ctx, name)
		return err
	})
	return pod
}

// Delete removes one of the cluster's objects, which must exist.
func (c *Cluster) Delete(t testing.TB, object client.Object, name string, options ...client.DeleteOption) {
	t.Helper()
	object.SetNamespace(c.Namespace)
	object.SetName(name)
	if err := c.Rig.Client.Delete(t.Context(), object, options...); err != nil {
		t.Fatalf("delete %T %s/%s: %v", object, c.Namespace, name, err)
	}
}

// Gone checks that an object is absent, or another one under the same name.
func (c *Cluster) Gone(ctx context.Context, object client.Object, name, uid string) error {
	err := c.Rig.Client.Get(ctx, Key(c.Namespace, name), object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case string(object.GetUID()) == uid:
		return fmt.Errorf("%T %s still exists", object, name)
	}
	return nil
}

// Key names an object.
func Key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}
