package druid

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
)

const (
	agentImage = "ghcr.io/etcd-druid/druid:test"
	// maxWait of a test with a druid on a machine that compiles next to it.
	maxWait = 3 * time.Minute
	// druidUser is the ServiceAccount of the install: druid has only the rights that it is installed with.
	druidUser = "system:serviceaccount:druid-system:druid"
)

// serviceAccounts are the groups of a ServiceAccount.
var serviceAccounts = []string{"system:serviceaccounts", "system:authenticated"}

// stage is a namespace on a real API server in which a real druid works, with the rights of its ClusterRole. The test
// stands in for the kubelets and the agents.
type stage struct {
	testing.TB
	client.Client // of an administrator
	config        *rest.Config
	namespace     string
	user          string // who druid is, druidUser where it is empty
	calls         *calls
	joins         bool // whether clusters join one that runs
	druids        []*Druid
	// beat renews Leases while the test waits, or nil.
	beat   func()
	beaten time.Time
}

// calls are the requests that druid made, and the creations of them that the API server took: of those that come too
// late, because druid's cache did not show the object yet, nothing becomes.
type calls struct {
	mu      sync.Mutex
	made    []string
	created []string
}

func (c *calls) RoundTrip(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.RawQuery, "watch=") && !strings.Contains(r.URL.Path, "/events") {
			c.mu.Lock()
			c.made = append(c.made, r.Method+" "+r.URL.Path)
			c.mu.Unlock()
		}
		response, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodPost && response.StatusCode == http.StatusCreated {
			c.mu.Lock()
			c.created = append(c.created, r.URL.Path)
			c.mu.Unlock()
		}
		return response, err
	})
}

// creations are the paths, ending in part, under which druid created something.
func (c *calls) creations(part string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.created), func(path string) bool { return !strings.HasSuffix(path, part) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// matching are the calls that begin with method and whose path holds part.
func (c *calls) matching(method, part string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.made), func(call string) bool {
		return !strings.HasPrefix(call, method+" ") || !strings.Contains(call, part)
	})
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.made)
}

// since are the calls after the first n.
func (c *calls) since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made[n:])
}

// newStage makes a namespace for a test that runs next to others; no druid works in it yet.
func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	return anotherStage(t)
}

// anotherStage is newStage for a test that has a stage already, or that runs alone.
func anotherStage(t *testing.T) *stage {
	t.Helper()
	return stageOn(t, env.APIServer(t))
}

// stageOn is a stage on an API server.
func stageOn(t *testing.T, config *rest.Config) *stage {
	t.Helper()
	s := &stage{TB: t, config: config, calls: &calls{}}
	s.Client, s.namespace = s.clientOf(config), env.Namespace(t, config)
	s.install("rbac.yaml")
	s.install("admission.yaml") // the policies hold for all tests on the API server, whichever comes first
	return s
}

// as is a client of another user, with the rights of the user and of its groups.
func (s *stage) as(user string, groups ...string) client.Client {
	s.Helper()
	return s.clientOf(s.configAs(user, groups...))
}

// configAs is a configuration of clients of another user.
func (s *stage) configAs(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// clientOf is a client for the types that druid uses.
func (s *stage) clientOf(config *rest.Config) client.Client {
	s.Helper()
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// install applies the objects of druid's own install.
func (s *stage) install(file string) {
	s.Helper()
	f, err := os.Open(filepath.Join("..", "manifests", "install", file))
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "druid-system"}}
	if err := client.IgnoreAlreadyExists(s.Create(s.Context(), namespace)); err != nil {
		s.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var object unstructured.Unstructured
		if decoder.Decode(&object.Object) != nil {
			return
		}
		if err := client.IgnoreAlreadyExists(s.Create(s.Context(), &object)); err != nil {
			s.Fatal(err)
		}
	}
}

// startDruid runs a druid until the returned function, or the test's end.
func (s *stage) startDruid(change ...func(*Options)) (stop func()) {
	s.Helper()
	o := DefaultOptions()
	o.AgentImage, o.Namespaces = agentImage, []string{s.namespace}
	o.LeaderElect, o.HealthAddress, o.MetricsAddress = false, "0", "0"
	o.AgentRenewInterval = time.Second // druid believes an acknowledgement after two of these
	for _, f := range change {
		f(&o)
	}
	config := s.configAs(cmp.Or(s.user, druidUser), serviceAccounts...)
	config.Wrap(s.calls.RoundTrip)
	config.Wrap(used.Record)
	ctx, cancel := context.WithCancel(s.Context())
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewJSONHandler(s.Output(), &slog.HandlerOptions{Level: level}))
	d, err := New(ctx, config, o, log)
	if err != nil {
		cancel()
		s.Fatal(err)
	}
	s.druids = append(s.druids, d)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("druid ended with %v", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

func (s *stage) newCluster(name string, replicas int32) *v1alpha1.EtcdCluster {
	cluster := &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: v1alpha1.EtcdClusterSpec{
			Replicas: replicas, Version: "3.7.3", Image: "gcr.io/etcd-development/etcd",
			Storage: v1alpha1.StorageSpec{Size: resource.MustParse("4Gi")},
		},
	}
	if s.joins {
		cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{Endpoints: []v1alpha1.JoinEndpoint{"http://etcd-0.old:2379"}}}
	}
	return cluster
}

func (s *stage) createCluster(name string, replicas int32) {
	s.Helper()
	cluster := s.newCluster(name, replicas)
	if err := s.Create(s.Context(), cluster); err != nil {
		s.Fatalf("create EtcdCluster %s: %v", name, err)
	}
}

// eventually polls until check finds nothing wrong.
func (s *stage) eventually(what string, check func() error) {
	s.Helper()
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	for {
		if beat := s.beat; beat != nil && time.Since(s.beaten) > time.Second {
			s.beat = nil // it waits for something too
			beat()
			s.beat, s.beaten = beat, time.Now()
		}
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			s.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// edit changes an object as a user does, who tries again when druid wrote it in between.
func (s *stage) edit(name string, object client.Object, change func()) {
	s.Helper()
	s.eventually("edit "+name, func() error {
		if err := s.fetch(name, object); err != nil {
			return err
		}
		change()
		return s.Update(s.Context(), object)
	})
}

// caughtUp waits until the cache of every druid has the object as the API server has it.
func (s *stage) caughtUp(name string, object client.Object) {
	s.Helper()
	s.eventually("the cache of druid has "+name, func() error {
		if err := s.fetch(name, object); err != nil {
			return err
		}
		live := object.GetResourceVersion()
		for _, d := range s.druids {
			err := d.manager.GetCache().Get(s.Context(), client.ObjectKeyFromObject(object), object)
			if err != nil || object.GetResourceVersion() != live {
				return fmt.Errorf("its cache has version %s, the API server %s: %w", object.GetResourceVersion(), live, err)
			}
		}
		return nil
	})
}

// fetch reads an object, and fails with what is missing.
func (s *stage) fetch(name string, into client.Object) error {
	return s.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, into)
}

func (s *stage) record(cluster string) (leases.Record, error) {
	var lease coordinationv1.Lease
	if err := s.fetch(leases.RecordName(cluster), &lease); err != nil {
		return leases.Record{}, err
	}
	return leases.DecodeRecord(&lease)
}

// members waits until the record lists count names and each has a Pod that its Lease names.
func (s *stage) members(cluster string, count int) []string {
	s.Helper()
	var names []string
	s.eventually("members", func() error {
		record, err := s.record(cluster)
		if err != nil {
			return err
		}
		if len(record.Members) != count {
			return fmt.Errorf("the record lists %v, want %d names", record.Members, count)
		}
		for _, name := range record.Members {
			if err := s.marked(name); err != nil {
				return err
			}
		}
		names = record.Members
		return nil
	})
	return names
}

// marked says whether the member's Lease names its Pod and its claim.
func (s *stage) marked(name string) error {
	var (
		lease coordinationv1.Lease
		claim corev1.PersistentVolumeClaim
		pod   corev1.Pod
	)
	for _, object := range []client.Object{&lease, &claim, &pod} {
		if err := s.fetch(name, object); err != nil {
			return err
		}
	}
	m, err := leases.DecodeMember(&lease)
	if err != nil {
		return err
	}
	if m.PodUID != string(pod.UID) || m.VolumeUID != string(claim.UID) {
		return fmt.Errorf("Lease %s names Pod %q and volume %q, want %s and %s", name, m.PodUID, m.VolumeUID, pod.UID, claim.UID)
	}
	return nil
}

// binder is what binds the member's claim to a volume.
func (s *stage) binder(name string) {
	s.Helper()
	s.eventually("bind claim "+name, func() error {
		var claim corev1.PersistentVolumeClaim
		if err := s.fetch(name, &claim); err != nil {
			return err
		}
		claim.Status.Phase = corev1.ClaimBound
		return s.Status().Update(s.Context(), &claim)
	})
}

// end is what a kubelet does when a deleted Pod's containers have ended: the Pod is gone.
func (s *stage) end(name string) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	// One that no node has taken may be gone already: druid's own deletion ends it.
	if err := s.Delete(s.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		s.Fatalf("end Pod %s: %v", name, err)
	}
}

// nodeName is the Node of all Pods that the test binds to none of its own. It is there if the test makes it.
func (s *stage) nodeName() string { return s.namespace + "-node" }

// kubelet reports that the Pod's containers run, and whether its etcd is ready.
func (s *stage) kubelet(name string, ready bool) {
	s.Helper()
	s.eventually("bind and report Pod "+name, func() error {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			return err
		}
		if pod.Spec.NodeName == "" {
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: s.nodeName()}}
			if err := s.SubResource("binding").Create(s.Context(), &pod, binding); err != nil {
				return err
			}
			if err := s.fetch(name, &pod); err != nil {
				return err
			}
		}
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status}, {Type: corev1.ContainersReady, Status: status},
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: manifests.ContainerEtcd, Ready: ready, Image: "etcd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		return s.Status().Update(s.Context(), &pod)
	})
}

const clusterID = 0xcdf818194e3a8c32

// agent renews the member's Lease, for longer than any test runs: none is about a Lease that goes stale.
func (s *stage) agent(cluster, name string, id uint64, role leases.Role) {
	s.Helper()
	now := time.Now()
	group, epoch := uint64(clusterID), uint32(1)
	if record, err := s.record(cluster); err == nil && record.ClusterID == restoredID {
		group, epoch = restoredID, record.FormedEpoch
	}
	patch := leases.MemberPatch{
		Member: leases.Member{
			ID: id, Role: role, ClusterID: group, Epoch: epoch, Lineage: leases.LineageOf(epoch, "0123456789abcdef"), Version: "3.7.3",
			Data: "Intact", Rule: "resume", Raft: leases.Raft{Term: 2, Committed: uint64(now.UnixNano()), LastTerm: 2, LastIndex: 9},
		},
		RenewTime: &now, Duration: time.Hour,
	}
	s.eventually("renew "+name, func() error {
		_, err := s.store(cluster).PatchMember(s.Context(), name, patch)
		return err
	})
}

func (s *stage) store(cluster string) *leases.Store {
	c, err := coordinationclient.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	return leases.NewStore(c.Leases(s.namespace), cluster)
}

// form does what the agents of a new cluster do: the seed claims and forms, the others join, all renew.
func (s *stage) form(cluster string, names []string) {
	s.Helper()
	s.eventually("form", func() error {
		record, version, err := s.store(cluster).Record(s.Context())
		if err != nil {
			return err
		}
		record.Phase, record.ClusterID, record.FormedEpoch = leases.PhaseFormed, clusterID, record.Epoch
		record.Nonce, record.Lineage, record.Executor = "0123456789abcdef", leases.LineageOf(1, "0123456789abcdef"), "executor"
		if s.joins {
			record.MaxLearners = leases.MaxLearnersAdopted
			alongside(&record, "etcd-0", "etcd-1", "etcd-2")
		}
		_, err = s.store(cluster).UpdateRecord(s.Context(), version, record)
		return err
	})
	for i, name := range names {
		s.binder(name)
		s.kubelet(name, true)
		s.agent(cluster, name, uint64(i+1), map[bool]leases.Role{true: leases.RoleLeader, false: leases.RoleMember}[i == 0])
	}
}

// condition waits until the EtcdCluster has the condition.
func (s *stage) condition(cluster, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	s.Helper()
	var found metav1.Condition
	s.eventually("condition "+kind, func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch(cluster, &c); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("is %+v, want %s %s", condition, status, reason)
		}
		found = *condition
		return nil
	})
	return found
}

// whole makes a formed cluster called demo of count members and waits until druid has nothing left to do.
func (s *stage) whole(count int32) []string {
	s.Helper()
	const cluster = "demo"
	s.createCluster(cluster, count)
	names := s.members(cluster, int(count))
	s.form(cluster, names)
	s.condition(cluster, v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition(cluster, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	return names
}

// uids of the members' objects.
func (s *stage) uids(names []string, object client.Object) map[string]types.UID {
	s.Helper()
	uids := map[string]types.UID{}
	for _, name := range names {
		if err := s.fetch(name, object); err != nil {
			s.Fatal(err)
		}
		uids[name] = object.GetUID()
	}
	return uids
}

// replaced waits until the object called name exists with another UID than before.
func (s *stage) replaced(name string, before types.UID, object client.Object) {
	s.Helper()
	s.eventually("replace "+name, func() error {
		if err := s.fetch(name, object); err != nil {
			return err
		}
		if object.GetUID() == before {
			return fmt.Errorf("%s still is %s", name, before)
		}
		return nil
	})
}
