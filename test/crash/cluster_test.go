package crash_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

const (
	clusterName, clusterUID = "demo", "cluster-uid"
	// maxWait of a test: the machine may be busy.
	maxWait = 3 * time.Minute
)

// cluster is members on loopback, each at an address of its own, and their Leases on a real kube-apiserver, where the
// agents have the rights of their Role. The test does what druid would do.
type cluster struct {
	t         *testing.T
	programs  programs
	rest      *rest.Config
	admin     *kubernetes.Clientset
	namespace string
	store     *leases.Store
	names     []string
	addresses map[string]string
	pods      map[string]*pod
	// hosting are the members of the group that was joined.
	hosting []*member.Member
	// leaving is what was asked last.
	leaving order
	// tls are the settings of clients, nil for plain text.
	tls *tls.Config
}

type programs struct{ etcd, version string }

var built = sync.OnceValues(func() (programs, error) {
	repo, err := binaries.RepoDir()
	if err != nil {
		return programs{}, err
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		return programs{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	set, err := binaries.Builder{Repo: repo, Cache: cache, Progress: func(string, ...any) {}}.Build(ctx)
	if err != nil {
		return programs{}, err
	}
	version, err := binaries.EtcdVersion(repo, "3.6")
	if err != nil {
		return programs{}, err
	}
	return programs{etcd: set["etcd-3.6"], version: strings.TrimPrefix(version, "v")}, nil
})

// quick is a configuration at the low end of what is legal.
func quick() config.Reloadable {
	r := config.DefaultReloadable()
	r.RenewInterval, r.LeaseDuration = config.Duration(2*time.Second), config.Duration(6*time.Second)
	r.SuperfluousGracePeriod = config.Duration(10 * time.Second)
	r.ComparisonInterval = config.Duration(10 * time.Second)
	// No story but that of fragments frees so much.
	r.Defragmentation.Enabled, r.Defragmentation.MinFreeBytes, r.Defragmentation.Interval = true, 1<<20, config.Duration(5*time.Second)
	r.Defragmentation.HistoryWindow = config.Duration(time.Second)
	return r
}

// newCluster makes the Leases of a cluster whose first member is the seed, and a Pod for each member without an agent.
func newCluster(t *testing.T, members int) *cluster {
	t.Helper()
	network := machine.Network(t)
	hosts := make([]string, members)
	for i := range hosts {
		hosts[i] = network + fmt.Sprint(i+1)
	}
	return newClusterAt(t, hosts...)
}

// newClusterAt is newCluster with a member at each of the addresses.
func newClusterAt(t *testing.T, hosts ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, rest: env.APIServer(t), addresses: map[string]string{}, pods: map[string]*pod{}}
	var err error
	c.programs, err = built()
	c.must(err)
	c.admin, c.namespace = kubernetes.NewForConfigOrDie(c.rest), env.Namespace(t, c.rest)
	api := c.admin.CoordinationV1().Leases(c.namespace)
	c.store = leases.NewStore(api, clusterName)
	for i, host := range hosts {
		name := fmt.Sprintf("%s-%c%[2]c%[2]c%[2]c%[2]c", clusterName, 'a'+i)
		c.names = append(c.names, name)
		c.addresses[name] = host
	}
	owner := c.owner()
	c.grant(owner)
	record, err := manifests.RecordLease(owner, leases.Record{
		Phase: leases.PhaseForming, Seed: c.names[0], Epoch: 1, Members: c.names,
	})
	c.must(err)
	all := []*coordinationv1.Lease{record, manifests.LeaderLease(owner)}
	for _, name := range c.names {
		all = append(all, c.memberLease(name))
	}
	for _, lease := range all {
		_, err := api.Create(t.Context(), lease, metav1.CreateOptions{})
		c.must(err)
	}
	for _, name := range c.names {
		c.newPod(name)
	}
	return c
}

func (c *cluster) owner() *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: c.namespace, UID: clusterUID}}
}

// memberLease of a member that nothing is known of.
func (c *cluster) memberLease(name string) *coordinationv1.Lease {
	lease := manifests.MemberLease(c.owner(), name)
	lease.Annotations = map[string]string{leases.AnnotationPodUID: "pod-" + name, leases.AnnotationVolumeUID: "volume-" + name}
	return lease
}

// grant gives the agents their Role.
func (c *cluster) grant(owner *v1alpha1.EtcdCluster) {
	c.t.Helper()
	shared, err := manifests.Shared(owner, leases.Record{Members: c.names}, manifests.Options{Reloadable: quick()})
	c.must(err)
	as := metav1.ApplyOptions{FieldManager: "druid", Force: true}
	for _, object := range shared {
		switch o := runtime.ApplyConfiguration(object.Configuration).(type) {
		case *rbacv1ac.RoleApplyConfiguration:
			_, err = c.admin.RbacV1().Roles(c.namespace).Apply(c.t.Context(), o, as)
		case *rbacv1ac.RoleBindingApplyConfiguration:
			_, err = c.admin.RbacV1().RoleBindings(c.namespace).Apply(c.t.Context(), o, as)
		}
		c.must(err)
	}
}

func (c *cluster) agentUser() string {
	return "system:serviceaccount:" + c.namespace + ":" + manifests.AgentName(clusterName)
}

// formed is a cluster whose members all vote, and which holds data.
func formed(t *testing.T, members int) *cluster {
	t.Helper()
	c := newCluster(t, members)
	c.form()
	return c
}

func (c *cluster) form() {
	c.t.Helper()
	for _, name := range c.names {
		c.pods[name].startAgent("")
	}
	c.heals()
	c.put("formed", "yes")
}

func (c *cluster) endpoint(name string) string {
	return transport.URL(c.tls != nil, c.addresses[name], config.ClientPort)
}

func (c *cluster) etcd(name string, use func(context.Context, *clientv3.Client) error) error {
	return c.etcdAt(c.endpoint(name), use)
}

func (c *cluster) etcdAt(endpoint string, use func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	client, err := transport.Transport{Client: c.tls}.Etcd(ctx, endpoint)
	if err != nil {
		return err
	}
	return errors.Join(use(ctx, client), client.Close())
}

func (c *cluster) put(key, value string) {
	c.t.Helper()
	c.eventually("put "+key, func() error {
		return c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Put(ctx, key, value)
			return err
		})
	})
}

// view is the member list as name reports it.
func (c *cluster) view(name string) (membership.View, error) { return c.viewAt(c.endpoint(name)) }

// viewAt is the member list as one of endpoints reports it.
func (c *cluster) viewAt(endpoints ...string) (membership.View, error) {
	return membership.Observe(c.t.Context(), transport.NewClients(transport.Transport{Client: c.tls}).Dial,
		membership.Query{Endpoints: endpoints, Timeout: 5 * time.Second})
}

// follower is a member that does not lead.
func (c *cluster) follower() *pod { return c.inRole(membership.RoleMember) }

// leader is the member that leads.
func (c *cluster) leader() *pod { return c.inRole(membership.RoleLeader) }

func (c *cluster) inRole(role membership.Role) (found *pod) {
	c.t.Helper()
	c.eventually("find a "+string(role), func() error {
		for _, name := range c.names {
			err := c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
				status, err := membership.ReadStatus(ctx, client, c.endpoint(name))
				if err == nil && status.Role == role {
					found = c.pods[name]
				}
				return err
			})
			if err != nil || found != nil {
				return err
			}
		}
		return errors.New("there is none")
	})
	return found
}

// other is a member that is not p.
func (c *cluster) other(p *pod) string {
	return c.names[slices.IndexFunc(c.names, func(name string) bool { return name != p.name })]
}

// changeRecord rewrites the record as someone else would.
func (c *cluster) changeRecord(change func(*leases.Record)) {
	c.t.Helper()
	c.eventually("change the record", func() error {
		record, version, err := c.store.Record(c.t.Context())
		if err != nil {
			return err
		}
		change(&record)
		_, err = c.store.UpdateRecord(c.t.Context(), version, record)
		return err
	})
}

// annotate writes into a member's Lease as druid does.
func (c *cluster) annotate(name, key, value string) {
	c.t.Helper()
	_, err := c.admin.CoordinationV1().Leases(c.namespace).Patch(c.t.Context(), name, "application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value), metav1.PatchOptions{})
	c.must(err)
}

func (c *cluster) eventually(what string, condition func() error) {
	c.t.Helper()
	deadline := time.Now().Add(maxWait)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %v", what, err)
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-c.t.Context().Done():
		case <-timer.C:
		}
	}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
