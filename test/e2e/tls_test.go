package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// leafLifetime is the shortest that the API accepts: druid renews after 80 s.
const leafLifetime = 2 * time.Minute

// TestCertificatesRenewedUnderLoad: certificates are renewed under load while members heal.
// Certificates with a lifetime of minutes are renewed on both planes under a writer, while clients connect all the time and a member
// loses its disk. Nothing restarts for it.
func TestCertificatesRenewedUnderLoad(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.TLS(leafLifetime), calledBy("caller"))
	view := c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, "CertificatesReady", "True", "CertificatesValid")
	members := c.MemberNames(t)
	first := expiries(t, c, members)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	t.Run("who has no certificate does not get in", func(t *testing.T) { outsidersStayOut(t, c, members[0]) })
	t.Run("a member that lost its disk heals", func(t *testing.T) { view = healsOnAnEmptyDisk(t, c, view) })
	t.Run("all certificates are renewed", func(t *testing.T) {
		restarts := restartsOf(t, c, members)
		h := c.Handshake(t, members)
		awaitRenewed(t, c, leafLifetime+scaleWithin, first)
		// Until the first certificates have ended: who still used one would be cut off.
		harness.Consistently(t, time.Until(lastOf(first))+5*time.Second, "members are ready", func(ctx context.Context) error {
			cluster, err := c.Get(ctx)
			if err == nil && cluster.Status.ReadyReplicas != 3 {
				err = fmt.Errorf("%d members are ready", cluster.Status.ReadyReplicas)
			}
			return err
		})
		clientsWereServed(t, h, len(members))
		if after := restartsOf(t, c, members); !slices.Equal(after, restarts) {
			t.Errorf("containers were restarted: %v, before %v", after, restarts)
		}
		c.AwaitCondition(t, scaleWithin, "CertificatesReady", "True", "CertificatesValid")
	})
	servedOn(t, w)
	t.Logf("longest time without a write: %s", w.Gap())
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
	t.Run("agents act for callers that may", func(t *testing.T) {
		agentsServeCallers(t, c, c.AwaitMembers(t, 3, scaleWithin), http.StatusConflict) // the cluster has no backups
	})
	c.ShowsNoSecret(t, nil, manifests.ConnectionName(c.Name)+"/tls.key")
}

// healsOnAnEmptyDisk wipes the volume of a follower and ends its etcd, and waits until the member is a voter with another ID.
func healsOnAnEmptyDisk(t *testing.T, c *harness.Cluster, before harness.View) harness.View {
	t.Helper()
	lost := before.Follower()
	c.VolumeOf(t, lost).Wipe(t)
	c.Kill(t, lost, harness.Etcd)
	return joinsAgain(t, c, before, lost)
}

// joinsAgain waits until the member votes under another ID.
func joinsAgain(t *testing.T, c *harness.Cluster, before harness.View, lost string) harness.View {
	t.Helper()
	harness.Eventually(t, healWithin, "the member has another ID", func(ctx context.Context) error {
		m, err := c.Member(ctx, lost)
		if err == nil && leases.FormatID(m.ID) == before.IDs()[lost] {
			err = fmt.Errorf("%s still has ID %x", lost, m.ID)
		}
		return err
	})
	return c.AwaitMembers(t, len(before.Members), healWithin)
}

// awaitRenewed waits until each member has later certificates on both planes than before.
func awaitRenewed(t *testing.T, c *harness.Cluster, within time.Duration, before map[string]leases.TLS) {
	t.Helper()
	harness.Eventually(t, within, "every member has later certificates on both planes", func(ctx context.Context) error {
		var errs []error
		for member, was := range before {
			m, err := c.Member(ctx, member)
			if err == nil && (!m.TLS.Client.NotAfter.After(was.Client.NotAfter) || !m.TLS.Peer.NotAfter.After(was.Peer.NotAfter)) {
				err = fmt.Errorf("%s has %+v, before %+v", member, m.TLS, was)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// expiries are the certificates of the members as they report them, by member.
func expiries(t *testing.T, c *harness.Cluster, members []string) map[string]leases.TLS {
	t.Helper()
	all := map[string]leases.TLS{}
	for _, member := range members {
		m, err := c.Member(t.Context(), member)
		if err != nil {
			t.Fatal(err)
		}
		if m.TLS.Client.Trusted == "" || m.TLS.Peer.Trusted == "" || m.TLS.Client.Problem+m.TLS.Peer.Problem != "" {
			t.Errorf("%s reports %+v", member, m.TLS)
		}
		all[member] = m.TLS
	}
	return all
}

func lastOf(all map[string]leases.TLS) (last time.Time) {
	for _, m := range all {
		for _, at := range []time.Time{m.Client.NotAfter, m.Peer.NotAfter} {
			if at.After(last) {
				last = at
			}
		}
	}
	return last
}

func restartsOf(t *testing.T, c *harness.Cluster, members []string) []int32 {
	t.Helper()
	var all []int32
	for _, member := range members {
		for _, container := range []string{manifests.ContainerAgent, manifests.ContainerEtcd} {
			all = append(all, c.Restarts(t, member, container))
		}
	}
	return all
}

// outsidersStayOut connects in the ways that must fail.
func outsidersStayOut(t *testing.T, c *harness.Cluster, member string) {
	t.Helper()
	foreign, err := pki.NewAuthority("foreign", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.ParseAuthority(foreign, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, enter := range map[string]func() error{
		"plain text":                         func() error { return c.EnterPlain(t.Context(), member) },
		"no certificate":                     func() error { return c.Enter(t.Context(), member, nil) },
		"a certificate of another authority": func() error { return c.Enter(t.Context(), member, &pair) },
	} {
		if enter() == nil {
			t.Errorf("%s gets in", name)
		}
	}
}

// Authentication is turned on by hand, as the guide says, under a writer: members heal, join, leave and are replaced, and backups go on.
func TestAuthenticationIsTurnedOnUnderAWriter(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.TLS(24*time.Hour), backedUp(s3.Store(bucket)))
	view := c.AwaitMembers(t, 3, formWithin)
	awaitBackups(t, c)
	w := harness.Load(t, c.EtcdService(t))
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	etcd := c.Etcd(t)
	_, err := etcd.RoleAdd(t.Context(), "root")
	errs := []error{err}
	for _, user := range []string{"root", "druid-agent", "client"} {
		_, err := etcd.UserAddWithOptions(t.Context(), user, "", &clientv3.UserAddOptions{NoPassword: true})
		_, granted := etcd.UserGrantRole(t.Context(), user, "root")
		errs = append(errs, err, granted)
	}
	_, err = etcd.AuthEnable(t.Context())
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	t.Run("a member that lost its disk heals", func(t *testing.T) { healsOnAnEmptyDisk(t, c, view) })
	t.Run("members join and leave", func(t *testing.T) {
		c.ScaleTo(t, 5, scaleWithin)
		c.ScaleTo(t, 3, scaleWithin)
	})
	t.Run("Pods are replaced", func(t *testing.T) {
		c.Edit(t, requests("101m"))
		c.AwaitCondition(t, scaleWithin, "Progressing", "True")
		c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
		c.AwaitMembers(t, 3, scaleWithin)
	})
	t.Run("what is written is saved", func(t *testing.T) {
		c.AwaitSaved(t, saveWithin, c.Revision(t))
		awaitBackups(t, c)
	})
	servedOn(t, w)
	w.Stop(t, c.Etcd(t))
}

// A user's Secrets are swapped wrongly in each way while the cluster runs, and then deleted: the members keep what they have, and
// the condition says what is wrong. A member whose Pod is deleted meanwhile starts no etcd, and says why, until the Secrets are good.
func TestBadSecretsOfAUserHarmNoMember(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	u := newUser(t, namespace)
	u.apply("clients", u.server)
	u.apply("peers", u.server)
	u.apply(manifests.ConnectionName("etcd"), u.client) // which the test's own clients read
	c := rig.ApplyIn(t, namespace, func(cluster *v1alpha1.EtcdCluster) {
		cluster.Spec.TLS = &v1alpha1.TLSSpec{
			Client: &v1alpha1.ClientTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "clients"}, Mode: v1alpha1.TLSMutual},
			Peer:   &v1alpha1.PeerTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "peers", ClientName: manifests.ConnectionName("etcd")}},
		}
	})
	view := c.AwaitMembers(t, 3, formWithin)
	w := harness.Load(t, c.EtcdService(t))
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	members, away := c.MemberNames(t), view.Follower()
	others := allBut(t, c, away)
	other := newUser(t, namespace)
	mixed := u.data(u.server)
	mixed[corev1.TLSPrivateKeyKey] = u.data(u.server)[corev1.TLSPrivateKeyKey]
	for _, bad := range []struct {
		name   string
		planes []string
		data   map[string][]byte
		says   string
	}{
		{"the key of another certificate", []string{"client"}, mixed, "does not belong"},
		{"another authority, and a certificate of it", []string{"client"}, other.data(other.server), "unknown to the running etcd"},
		{"a certificate for other names", []string{"client"},
			u.data(pki.Request{CommonName: "etcd", DNSNames: []string{"example.com"}, Server: true, Client: true, Lifetime: time.Hour}), ".svc"},
		{"an expired certificate", []string{"client", "peer"},
			u.data(pki.Request{CommonName: "etcd", DNSNames: u.server.DNSNames, Server: true, Client: true, Lifetime: -time.Minute}), "expired"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			for _, plane := range bad.planes {
				u.put(plane+"s", bad.data)
			}
			u.nudge(c, members)
			c.AwaitCondition(t, scaleWithin, "CertificatesReady", "False", "CertificatesRejected", bad.says)
			h := c.Handshake(t, others)
			deletePod(t, c, away)
			waits(t, c, away)
			for _, plane := range bad.planes {
				rejects(t, c, away, plane+" certificates", bad.says)
			}
			if h := h.Stop(); h.Missed > 0 || h.Made == 0 {
				t.Errorf("%s: %v", h, h.Why)
			}
		})
	}
	t.Run("both Secrets are good again", func(t *testing.T) {
		u.apply("clients", u.server)
		u.apply("peers", u.server)
		u.nudge(c, members)
		same(t, view, c.AwaitMembers(t, 3, healWithin))
	})
	t.Run("both Secrets are deleted and come back", func(t *testing.T) {
		for _, name := range []string{"clients", "peers"} {
			c.Delete(t, &corev1.Secret{}, name)
		}
		u.nudge(c, members)
		c.AwaitCondition(t, scaleWithin, "CertificatesReady", "False", "CertificatesRejected", "missing")
		// Its Pod stays, so it starts with what was good.
		c.Kill(t, away, harness.Etcd)
		c.AwaitMembers(t, 3, healWithin)
		u.apply("clients", u.server)
		u.apply("peers", u.server)
		u.nudge(c, members)
		c.AwaitCondition(t, scaleWithin, "CertificatesReady", "True", "CertificatesValid")
	})
	servedOn(t, w)
	w.Stop(t, c.Etcd(t))
}

// rejects waits until the Lease of a member that starts no etcd and the condition of the cluster name a fault of its certificates.
func rejects(t *testing.T, c *harness.Cluster, member, certificates, says string) {
	t.Helper()
	harness.Eventually(t, scaleWithin, member+" names the fault", func(ctx context.Context) error {
		m, err := c.Member(ctx, member)
		if _, reason, _ := strings.Cut(m.Reason, certificates); err == nil && !strings.Contains(reason, says) {
			err = fmt.Errorf("its Lease says rule %q, reason %q", m.Rule, m.Reason)
		}
		return err
	})
	c.AwaitCondition(t, scaleWithin, "CertificatesReady", "False", "CertificatesRejected", certificates+" of", member, says)
}

// leastConnections is how many connections a story must make to prove that clients are served. The load of the machine decides how many more
// there are.
const leastConnections = 50

// clientsWereServed says that each connection of clients that follow the docs succeeded, and that at most so many attempts at one member
// met the moment at which etcd reads a new certificate and key. A member that restarts meets no client.
func clientsWereServed(t *testing.T, running *harness.Handshaker, refused int) {
	t.Helper()
	h := running.Stop()
	t.Log(h)
	if h.Failed > 0 || h.Refused > refused || h.Made < leastConnections {
		t.Errorf("%s; want at least %d, 0 failed, at most %d refused: %v", h, leastConnections, refused, h.Why)
	}
}

// user has an authority of its own.
type user struct {
	t         *testing.T
	namespace string
	pair      pki.Pair
	authority pki.Authority
	// server is good for both planes, client for those who connect.
	server, client pki.Request
}

func newUser(t *testing.T, namespace string) *user {
	t.Helper()
	pair, err := pki.NewAuthority("user", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.ParseAuthority(pair, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &user{
		t: t, namespace: namespace, pair: pair, authority: authority,
		server: pki.Request{CommonName: "etcd", DNSNames: []string{"*.etcd-peer." + namespace + ".svc", "etcd-client." + namespace + ".svc"},
			Server: true, Client: true, Lifetime: time.Hour},
		client: pki.Request{CommonName: "user", Client: true, Lifetime: time.Hour},
	}
}

func (u *user) data(r pki.Request) map[string][]byte {
	u.t.Helper()
	pair, err := u.authority.Issue(r, time.Now())
	if err != nil {
		u.t.Fatal(err)
	}
	data := manifests.PairData(pair)
	data[manifests.KeyAuthorities] = u.pair.Certificate
	return data
}

func (u *user) apply(name string, r pki.Request) { u.t.Helper(); u.put(name, u.data(r)) }

// put creates the Secret or replaces its content.
func (u *user) put(name string, data map[string][]byte) {
	u.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	err := rig.Client.Create(u.t.Context(), secret.DeepCopy())
	if err != nil && client.IgnoreAlreadyExists(err) == nil {
		err = rig.Client.Update(u.t.Context(), secret)
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// nudge makes the kubelets update the mounted Secrets at once.
func (u *user) nudge(c *harness.Cluster, members []string) {
	u.t.Helper()
	for _, member := range members {
		patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/nudge":%q}}}`, time.Now().String())))
		if err := rig.Client.Patch(u.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: member}}, patch); err != nil {
			u.t.Fatal(err)
		}
	}
}
