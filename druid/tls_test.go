package druid

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// reportPeers is what the agent reports about how its etcd listens to its peers.
func (c *clocked) reportPeers(name string, way v1alpha1.TLSStage) {
	c.Helper()
	scheme := map[v1alpha1.TLSStage]string{v1alpha1.TLSStageBoth: leases.SchemePlain, v1alpha1.TLSStageOn: leases.SchemeSecure}[way]
	patch := leases.MemberPatch{Member: leases.Member{TLS: leases.TLS{}.With("peer", leases.TLSPlane{Issuer: "ca", Scheme: scheme})}}
	if _, err := c.store("demo").PatchMember(c.Context(), name, patch); err != nil {
		c.Fatal(err)
	}
}

// ways are how the Pods of the members use TLS of clients and of peers.
func (c *clocked) ways(names []string) (clients, peers []v1alpha1.TLSStage) {
	c.Helper()
	for _, name := range names {
		var pod corev1.Pod
		if err := c.fetch(name, &pod); err != nil {
			c.Fatal(err)
		}
		clients, peers = append(clients, manifests.PodTLS(&pod, manifests.PlaneClient)), append(peers, manifests.PodTLS(&pod, manifests.PlanePeer))
	}
	return clients, peers
}

// agree checks that no member without TLS meets one with TLS only, and that the endpoints in the status and in the Secret for clients
// work on every member.
func (c *clocked) agree(names []string) {
	c.Helper()
	clients, peers := c.ways(names)
	for kind, ways := range map[string][]v1alpha1.TLSStage{"clients": clients, "peers": peers} {
		if slices.Contains(ways, v1alpha1.TLSStageOff) && slices.Contains(ways, v1alpha1.TLSStageOn) {
			c.Fatalf("for %s the members use %v", kind, ways)
		}
	}
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		c.Fatal(err)
	}
	works := func(endpoint string) bool {
		bad := v1alpha1.TLSStageOff
		if strings.HasPrefix(endpoint, "http://") {
			bad = v1alpha1.TLSStageOn
		}
		return !slices.Contains(clients, bad)
	}
	if len(cluster.Status.Endpoints) != 1 || !works(cluster.Status.Endpoints[0]) {
		c.Errorf("endpoints are %q, and the members use %v", cluster.Status.Endpoints, clients)
	}
	var secret corev1.Secret
	if err := c.fetch(manifests.ConnectionName("demo"), &secret); client.IgnoreNotFound(err) != nil {
		c.Fatal(err)
	} else if err == nil && !works(string(secret.Data[manifests.KeyEndpoints])) {
		c.Errorf("the Secret for clients has %s, and the members use %v", secret.Data[manifests.KeyEndpoints], clients)
	}
}

// replaceNext plays the next replacement of a Pod in a rolling update, and says whether there was one.
func (c *clocked) replaceNext(names []string) bool {
	c.Helper()
	c.pass()
	c.agree(names)
	going := c.going(names)
	if len(going) == 0 {
		return false
	}
	if len(going) != 1 {
		c.Fatalf("%v were deleted at once", going)
	}
	pod := c.replace(going[0])
	c.kubelet(going[0], true)
	c.renew(names, slices.Index(names, going[0]))
	c.reportPeers(going[0], manifests.PodTLS(pod, manifests.PlanePeer))
	c.passes(1)
	c.agree(names)
	c.after(stable)
	if all := c.reported(); len(all) > maxEvents {
		c.Fatalf("one replacement is %d Events: %q", len(all), all)
	}
	return true
}

// maxEvents bounds the Events of one replacement: a handful for the Pod, the certificates and the conditions.
const maxEvents = 25

// rolls replaces Pods until druid replaces none, and returns how many it replaced.
func (c *clocked) rolls(names []string) (replaced int) {
	c.Helper()
	for c.replaceNext(names) {
		if replaced++; replaced > 3*len(names) {
			c.Fatalf("%d Pods were replaced, and it goes on", replaced)
		}
	}
	return replaced
}

// TLS is turned on for a running cluster, off, and on again. Each member is replaced twice, except where the last one can take both
// steps at once. At no moment do members or endpoints not fit together.
func TestTLSIsTurnedOnAndOffByRollingUpdates(t *testing.T) {
	c, names := renewed(t)
	all := func(way v1alpha1.TLSStage) []v1alpha1.TLSStage { return []v1alpha1.TLSStage{way, way, way} }
	for _, step := range []struct {
		name, patch  string
		client, peer v1alpha1.TLSStage
		replaced     int
	}{
		{"on for clients, and plain text", `{"spec":{"tls":{"client":{"auto":{},"plaintext":"Allow"}}}}`, v1alpha1.TLSStageBoth, v1alpha1.TLSStageOff, 3},
		{"plain text is denied", `{"spec":{"tls":{"client":{"plaintext":"Deny"}}}}`, v1alpha1.TLSStageOn, v1alpha1.TLSStageOff, 3},
		{"on for peers", `{"spec":{"tls":{"peer":{"auto":{}}}}}`, v1alpha1.TLSStageOn, v1alpha1.TLSStageOn, 5},
		{"both off", `{"spec":{"tls":null}}`, v1alpha1.TLSStageOff, v1alpha1.TLSStageOff, 5},
		{"both on again", `{"spec":{"tls":{"client":{"auto":{}},"peer":{"auto":{}}}}}`, v1alpha1.TLSStageOn, v1alpha1.TLSStageOn, 5},
	} {
		c.patchCluster(step.patch)
		got := c.rolls(names)
		t.Logf("%s: %d Pods were replaced", step.name, got)
		if got < 3 || got > 6 || (step.replaced == 3) != (got == 3) {
			t.Errorf("%s: %d Pods were replaced", step.name, got)
		}
		clients, peers := c.ways(names)
		if !slices.Equal(clients, all(step.client)) || !slices.Equal(peers, all(step.peer)) {
			t.Fatalf("%s: members serve clients with %v, and peers use %v", step.name, clients, peers)
		}
		var cluster v1alpha1.EtcdCluster
		if err := c.fetch("demo", &cluster); err != nil {
			t.Fatal(err)
		}
		if off := step.client == v1alpha1.TLSStageOff; off != (cluster.Status.TLS == nil) || cluster.Status.FormerTLS != nil {
			t.Errorf("%s: status.tls is %+v, status.formerTLS %v", step.name, cluster.Status.TLS, cluster.Status.FormerTLS)
		}
		if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
			t.Errorf("%s: in the end it is %s: %s", step.name, p.Reason, p.Message)
		}
	}
}

// TestFormerSchemeMemberGetsNewPod: a member that kept the former scheme gets another Pod.
// A member whose etcd listens otherwise than its Pod says, because it started without a quorum, gets another Pod.
func TestFormerSchemeMemberGetsNewPod(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"tls":{"peer":{"auto":{}}}}}`)
	c.rolls(names)
	c.reportPeers(names[2], v1alpha1.TLSStageBoth)
	c.pass()
	if got := c.going(names); !slices.Equal(got, names[2:]) {
		t.Errorf("%v were deleted, want %s", got, names[2])
	}
}

// TestUnreportedSchemeReplacesNoPod: a scheme that is not reported replaces no Pod.
// The agents of an earlier version do not report how etcd listens to its peers. That is no reason to replace their Pods, and TLS of peers
// is not removed before it is known.
func TestUnreportedSchemeReplacesNoPod(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"tls":{"peer":{"auto":{}}}}}`)
	c.rolls(names)
	c.reportPeers(names[2], "")
	c.pass()
	if got := c.going(names); len(got) > 0 {
		t.Fatalf("%v were deleted", got)
	}
	c.patchCluster(`{"spec":{"tls":null}}`)
	for range names {
		c.replaceNext(names)
		c.reportPeers(names[2], "")
	}
	c.replaceNext(names)
	if _, peers := c.ways(names); slices.Contains(peers, v1alpha1.TLSStageOff) {
		t.Errorf("peers use %v, and how %s listens is not known", peers, names[2])
	}
}

// restartDruid begins another process of druid, which remembers nothing. The agents renew their Leases.
func (c *clocked) restartDruid(names []string) {
	c.Helper()
	c.memory = newMemory()
	c.pass()
	_, peers := c.ways(names)
	for i, name := range names {
		c.renew(names, i)
		c.reportPeers(name, peers[i])
	}
	c.pass()
	c.after(stable)
}

// A user changes the mind in the middle, from each stage, and druid is started again in between. Members always reach each other.
func TestTLSIsTurnedBackInTheMiddle(t *testing.T) {
	const on, off = `{"spec":{"tls":{"client":{"auto":{}},"peer":{"auto":{}}}}}`, `{"spec":{"tls":null}}`
	c, names := renewed(t)
	for _, turn := range []struct {
		there, back string
		end         v1alpha1.TLSStage
	}{{on, off, v1alpha1.TLSStageOff}, {off, on, v1alpha1.TLSStageOn}} {
		c.patchCluster(turn.back)
		c.rolls(names)
		for _, after := range []int{1, 4} {
			c.patchCluster(turn.there)
			for range after {
				c.replaceNext(names)
			}
			c.patchCluster(turn.back)
			c.restartDruid(names)
			c.rolls(names)
			clients, peers := c.ways(names)
			if slices.ContainsFunc(slices.Concat(clients, peers), func(s v1alpha1.TLSStage) bool { return s != turn.end }) {
				t.Fatalf("turned back after %d Pods, members serve clients with %v, and peers use %v, want %s", after, clients, peers, turn.end)
			}
		}
	}
}

// TestTLSSourceChangesInOrder: another source of TLS is used after the first one.
// The source of the certificates is another one before all members have left the first one. They leave it first, and what the status says
// of its authorities ends.
func TestTLSSourceChangesInOrder(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"tls":{"peer":{"auto":{}}}}}`)
	c.rolls(names)
	before := c.peerStatus()
	if before == nil || len(before.Trusted) == 0 {
		t.Fatalf("status.tls.peer is %+v, want the authorities of druid", before)
	}
	c.patchCluster(`{"spec":{"tls":null}}`)
	c.replaceNext(names)
	c.patchCluster(`{"spec":{"tls":{"peer":{"secretRef":{"name":"mine"}}}}}`)
	seen := map[v1alpha1.TLSStage]bool{}
	for n := 0; c.replaceNext(names); n++ {
		_, peers := c.ways(names)
		for i, way := range peers {
			seen[way] = true
			if way == v1alpha1.TLSStageOn && !seen[v1alpha1.TLSStageOff] && c.mounts(names[i], "mine") {
				t.Fatalf("%s uses the second source, and members use the first: %v", names[i], peers)
			}
		}
		if n > 5*len(names) {
			t.Fatal("it goes on")
		}
	}
	for _, name := range names {
		if !c.mounts(name, "mine") {
			t.Errorf("%s does not mount the Secret of the second source", name)
		}
	}
	if after := c.peerStatus(); after == nil || after.Stage != v1alpha1.TLSStageOn || len(after.Trusted) > 0 || after.Authority != "" {
		t.Errorf("status.tls.peer is %+v, want nothing of the authorities of druid", after)
	}
}

// peerStatus is what the status says of the certificates for peers.
func (c *clocked) peerStatus() *v1alpha1.TLSPlaneStatus {
	c.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		c.Fatal(err)
	}
	if cluster.Status.TLS == nil {
		return nil
	}
	return cluster.Status.TLS.Peer
}

// mounts says whether the Pod of the member mounts the Secret for its certificates.
func (c *clocked) mounts(name, secret string) bool {
	c.Helper()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	for _, volume := range pod.Spec.Volumes {
		if p := volume.Projected; p != nil && slices.ContainsFunc(p.Sources,
			func(s corev1.VolumeProjection) bool { return s.Secret != nil && s.Secret.Name == secret }) {
			return true
		}
	}
	return false
}

// The message about authentication that was turned on by hand depends on it.
func TestAgentsLogInOnlyWithCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		tls  *v1alpha1.TLSSpec
		want bool
	}{
		"no TLS":                       {nil, false},
		"TLS of peers alone":           {&v1alpha1.TLSSpec{Peer: &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}}}, false},
		"certificates of members":      {&v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, Mode: v1alpha1.TLSServerOnly}}, false},
		"certificates of clients too":  {&v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, Mode: v1alpha1.TLSMutual}}, true},
		"the mode that is the default": {&v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}}}, true},
	} {
		d, err := desiredOf(&v1alpha1.EtcdCluster{Spec: v1alpha1.EtcdClusterSpec{TLS: c.tls}})
		if err != nil || d.AgentsLogIn != c.want {
			t.Errorf("%s: %t, want %t (%v)", name, d.AgentsLogIn, c.want, err)
		}
	}
}
