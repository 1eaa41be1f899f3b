package manifests

import (
	"fmt"
	"os"
	"testing"
	"time"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// lost is a member that the record lists and whose Lease is gone.
const lost = "demo-lost1"

// refusals are the validations of the policies of the install that the tests of this package failed.
var refusals env.Refusals

// policies are those of the install.
var policies = []string{"druid-agent-leases", "druid-authorities", "druid-certificates", "druid-clusters", "druid-objects", "druid-pods", "druid-secrets",
	"druid-snapshots", "druid-specs"}

func TestMain(m *testing.M) {
	code := env.Main(m)
	if untested := refusals.Untested(policies...); code == 0 && env.Complete() && len(untested) > 0 {
		fmt.Fprintf(os.Stderr, "no test has a request that only one of these validations refuses: remove them, or test what they refuse: %v\n", untested)
		code = 1
	}
	os.Exit(code)
}

// installed is a real API server with the install applied to it, and a cluster of which druid, with the rights that the
// install gives it and no other, has made everything.
type installed struct {
	config  *rest.Config
	admin   client.Client
	druid   client.Client
	agent   client.WithWatch
	cluster *v1alpha1.EtcdCluster
}

// TestAPIServer holds that what this package renders is accepted in a namespace of the Restricted level, and that the
// rights which it gives to druid and to the agents are enough, and no more.
func TestAPIServer(t *testing.T) {
	in := install(t, env.APIServer(t))
	t.Run("druid can make everything of a cluster", func(t *testing.T) { in.makeCluster(t) })
	t.Run("what is applied again is not written", func(t *testing.T) { in.applyAgain(t) })
	t.Run("agents can do what they must and nothing else", func(t *testing.T) { in.agentRights(t) })
	t.Run("druid cannot do what it need not", func(t *testing.T) { in.druidRights(t) })
	t.Run("druid can make the Pod of a snapshot", func(t *testing.T) {
		pod, err := SnapshotPod(in.cluster, ownStore(in.cluster), SnapshotRun{Within: SnapshotTimeout}, options())
		if err != nil {
			t.Fatal(err)
		}
		if err := in.druid.Create(t.Context(), pod); err != nil {
			t.Error(err)
		}
	})
	t.Run("druid itself meets the Restricted level", func(t *testing.T) { in.druidPod(t) })
}

func install(t *testing.T, config *rest.Config) *installed {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Wrap(refusals.Record)
	in := &installed{config: config, admin: clientAs(t, config, "")}
	for _, object := range installObjects(t) {
		policies, err := refusals.Split(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range append(policies, object) {
			err := in.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(one), client.FieldOwner("test"), client.ForceOwnership)
			if err != nil {
				t.Fatalf("apply %s %s: %v", one.GetKind(), one.GetName(), err)
			}
		}
	}
	namespace := env.Namespace(t, config)
	restricted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{
			"name":   namespace,
			"labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
		},
	}}
	err := in.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(restricted), client.FieldOwner("test"))
	if err != nil {
		t.Fatalf("restrict the namespace: %v", err)
	}
	cluster := full()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: "demo", Namespace: namespace}
	runtimeClass := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: *cluster.Spec.RuntimeClassName}, Handler: "runsc"}
	if err := client.IgnoreAlreadyExists(in.admin.Create(t.Context(), runtimeClass)); err != nil {
		t.Fatalf("create the RuntimeClass: %v", err) // the API server takes no Pod that names another
	}
	if err := in.admin.Create(t.Context(), cluster); err != nil {
		t.Fatalf("create the EtcdCluster: %v", err)
	}
	in.cluster = cluster
	in.druid = clientAs(t, config, "system:serviceaccount:druid-system:druid")
	in.agent = clientAs(t, boundTo(config, member, "pod-uid"), "system:serviceaccount:"+namespace+":"+AgentName("demo"))
	allowed(t, "druid", func() error {
		return in.druid.Get(t.Context(), client.ObjectKeyFromObject(cluster), &v1alpha1.EtcdCluster{})
	})
	return in
}

// maxWait with an API server that needs milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// allowed waits until the API server's authorizer, which reads from a cache, knows the rights that were just given.
func allowed(t testing.TB, whom string, try func() error) {
	t.Helper()
	await(t, whom+" has no rights", func() (bool, error) {
		err := try()
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatalf("await the rights of %s: %v", whom, err)
		}
		return err == nil, err
	})
}

// await tries until the answer is yes. It fails the test with what is missing and the last error after maxWait.
func await(t testing.TB, missing string, try func() (bool, error)) {
	t.Helper()
	for poll, late := time.Tick(20*time.Millisecond), time.After(maxWait); ; {
		ok, err := try()
		if ok {
			return
		}
		select {
		case <-poll:
		case <-late:
			t.Fatalf("%s after %s: %v", missing, maxWait, err)
		}
	}
}

// boundTo is for a token of a Pod.
func boundTo(config *rest.Config, pod, uid string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/pod-name": {pod}, "authentication.kubernetes.io/pod-uid": {uid}}
	return config
}

// clientAs acts as user, or as the administrator when user is empty.
func clientAs(t testing.TB, config *rest.Config, user string) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config = rest.CopyConfig(config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}, Extra: config.Impersonate.Extra,
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return c
}

func (in *installed) makeCluster(t *testing.T) {
	for _, object := range in.applied(t) {
		if err := in.druid.Apply(t.Context(), object.Configuration, client.FieldOwner("druid"), client.ForceOwnership); err != nil {
			t.Errorf("apply %s %s: %v", object.Kind.Kind, object.Name, err)
		}
	}
	pod, err := Pod(in.cluster, member, options())
	if err != nil {
		t.Fatal(err)
	}
	record, err := RecordLease(in.cluster, leases.Record{Phase: leases.PhaseForming, Seed: member, Epoch: 1, Members: []string{member}})
	if err != nil {
		t.Fatal(err)
	}
	fullLease, err := SnapshotLease(in.cluster, leases.ComponentFullSnapshot)
	if err != nil {
		t.Fatal(err)
	}
	deltaLease, err := SnapshotLease(in.cluster, leases.ComponentDeltaSnapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		fullLease, deltaLease,
		record, LeaderLease(in.cluster), MemberLease(in.cluster, member), PersistentVolumeClaim(in.cluster, member), pod,
	} {
		if err := in.druid.Create(t.Context(), object, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

func (in *installed) applied(t testing.TB) []Applied {
	t.Helper()
	all, err := Shared(in.cluster, leases.Record{Members: []string{member, lost}}, options())
	if err != nil {
		t.Fatal(err)
	}
	budget, err := DisruptionBudget(in.cluster, 2, evictions)
	if err != nil {
		t.Fatal(err)
	}
	return append(all, budget)
}

func (in *installed) applyAgain(t *testing.T) {
	for _, object := range in.applied(t) {
		before, after := in.read(t, object), func() *metav1.PartialObjectMetadata {
			if err := in.druid.Apply(t.Context(), object.Configuration, client.FieldOwner("druid"), client.ForceOwnership); err != nil {
				t.Fatalf("apply %s %s: %v", object.Kind.Kind, object.Name, err)
			}
			return in.read(t, object)
		}()
		if before.Annotations[AnnotationHash] != object.Hash {
			t.Errorf("%s %s bears hash %q, want %q", object.Kind.Kind, object.Name, before.Annotations[AnnotationHash], object.Hash)
		}
		if before.ResourceVersion != after.ResourceVersion {
			t.Errorf("%s %s was written again", object.Kind.Kind, object.Name)
		}
	}
}

func (in *installed) read(t testing.TB, object Applied) *metav1.PartialObjectMetadata {
	t.Helper()
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.Kind)
	if err := in.druid.Get(t.Context(), client.ObjectKey{Namespace: object.Namespace, Name: object.Name}, live); err != nil {
		t.Fatalf("get %s %s: %v", object.Kind.Kind, object.Name, err)
	}
	return live
}
