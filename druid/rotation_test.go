package druid

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

var bothPlanes = []manifests.Plane{manifests.PlaneClient, manifests.PlanePeer}

// rotation is a cluster of three whose agents do with certificates what real ones do.
type rotation struct {
	*clocked
	names []string
	// state is what each member runs with.
	state map[string]map[manifests.Plane]leases.TLSPlane
	// restarts counts the Pods that were replaced.
	restarts int
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	s := newStage(t)
	s.node(s.nodeName(), true)
	stop := s.startDruid()
	cluster := s.newCluster("demo", 3)
	cluster.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, TrustHold: &metav1.Duration{Duration: time.Minute}},
		Peer:   &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}},
	}
	if err := s.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	names := s.members("demo", 3)
	s.form("demo", names)
	s.condition("demo", v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	stop()
	r := &rotation{clocked: s.clocked(), names: names, state: map[string]map[manifests.Plane]leases.TLSPlane{}}
	for i := range names {
		r.start(i)
	}
	r.look()
	return r
}

// delivered is what the Secret of the members has, which must be there.
func (r *rotation) delivered(p manifests.Plane) (trusted []string, issuer string) {
	r.Helper()
	trusted, issuer, err := r.secretOf(p)
	if err != nil {
		r.Fatal(err)
	}
	return trusted, issuer
}

// start is what an agent does before etcd starts in a new Pod.
func (r *rotation) start(i int) {
	r.Helper()
	name := r.names[i]
	r.state[name] = map[manifests.Plane]leases.TLSPlane{}
	for _, p := range bothPlanes {
		trusted, issuer := r.delivered(p)
		r.state[name][p] = leases.TLSPlane{Trusted: strings.Join(trusted, ","), Issuer: issuer, NotAfter: r.at.Add(time.Hour)}
	}
	r.report(i)
}

// stage takes a certificate that the running etcd trusts.
func (r *rotation) stageLeaves(i int) {
	r.Helper()
	for _, p := range bothPlanes {
		state := r.state[r.names[i]][p]
		if _, issuer := r.delivered(p); issuer != "" && strings.Contains(state.Trusted, issuer) {
			state.Issuer = issuer
		}
		r.state[r.names[i]][p] = state
	}
	r.report(i)
}

func (r *rotation) report(i int) {
	r.Helper()
	r.reportPlanes(r.names[i], r.state[r.names[i]])
}

// look lets the agents and the kubelets work, and then druid.
func (r *rotation) look() {
	r.Helper()
	if down := r.going(r.names); len(down) > 1 {
		r.Fatalf("%q restart at once", down)
	}
	for i, name := range r.names {
		if r.terminates(name) {
			r.replace(name)
			r.kubelet(name, true)
			r.pass()
			r.start(i)
			r.restarts++
		}
		r.stageLeaves(i)
		r.renew(r.names, i)
	}
	for _, p := range bothPlanes {
		for _, a := range r.names {
			for _, b := range r.names {
				if !strings.Contains(r.state[b][p].Trusted, r.state[a][p].Issuer) {
					r.Fatalf("%s: %s uses a certificate that %s does not trust", p, a, b)
				}
			}
		}
	}
	r.after(stable)
}

func (r *rotation) plane(p manifests.Plane) v1alpha1.TLSPlaneStatus {
	r.Helper()
	if s := manifests.PlaneStatus(r.cluster(), p); s != nil {
		return *s
	}
	return v1alpha1.TLSPlaneStatus{}
}

func (r *rotation) annotate(value string) {
	r.patchCluster(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.RotateCAAnnotation, value))
}

// until looks until done says so, and returns the phases on the way.
func (r *rotation) until(p manifests.Plane, done func(v1alpha1.TLSPlaneStatus) bool) (phases []v1alpha1.TLSPhase) {
	r.Helper()
	for range 80 {
		s := r.plane(p)
		if len(phases) == 0 || phases[len(phases)-1] != s.Phase {
			phases = append(phases, s.Phase)
		}
		if done(s) {
			return phases
		}
		r.look()
	}
	s := r.plane(p)
	s.Trusted = nil
	r.Fatalf("it did not come to that; phases %q, status %+v, reports %+v, trusted %d", phases, s, r.state, len(r.plane(p).Trusted))
	return nil
}

func (r *rotation) deleteSecret(name string) {
	r.Helper()
	if err := r.Delete(r.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}}); err != nil {
		r.Fatal(err)
	}
}

// Both authorities are replaced on request, by one restart of each member at a time before and after the switch. The
// request stays, and requests nothing more.
func TestAuthorityRotationOneMemberAtATime(t *testing.T) {
	r := newRotation(t)
	before := map[manifests.Plane]string{}
	for _, p := range bothPlanes {
		before[p] = r.plane(p).Authority
		if s := r.plane(p); s.Phase != v1alpha1.TLSStable || len(s.Trusted) != 1 || s.Authority == "" {
			t.Fatalf("%s: the status is %+v", p, s)
		}
	}
	r.annotate("2026-11-25")
	replaced := func(p manifests.Plane) func(v1alpha1.TLSPlaneStatus) bool {
		return func(s v1alpha1.TLSPlaneStatus) bool {
			return s.Phase == v1alpha1.TLSStable && s.Authority != before[p]
		}
	}
	phases := r.until(manifests.PlaneClient, replaced(manifests.PlaneClient))
	r.until(manifests.PlanePeer, replaced(manifests.PlanePeer))
	want := []v1alpha1.TLSPhase{
		v1alpha1.TLSStable, v1alpha1.TLSTrustingBoth, v1alpha1.TLSWaitingForClients, v1alpha1.TLSIssuingCertificates,
		v1alpha1.TLSWaitingForOldCertificates, v1alpha1.TLSTrustingNew, v1alpha1.TLSStable,
	}
	for _, phase := range phases {
		if !slices.Contains(want, phase) {
			t.Errorf("phase %q", phase)
		}
	}
	for _, phase := range []v1alpha1.TLSPhase{v1alpha1.TLSTrustingBoth, v1alpha1.TLSWaitingForClients, v1alpha1.TLSWaitingForOldCertificates,
		v1alpha1.TLSTrustingNew} {
		if !slices.Contains(phases, phase) {
			t.Errorf("phase %s did not come: %q", phase, phases)
		}
	}
	if value := r.cluster().Annotations[v1alpha1.RotateCAAnnotation]; value != "2026-11-25" || r.plane(manifests.PlanePeer).LastHandledRotateCA != value {
		t.Errorf("the annotation is %q, and handled is %q", value, r.plane(manifests.PlanePeer).LastHandledRotateCA)
	}
	for _, p := range bothPlanes {
		trusted, issuer := r.delivered(p)
		if len(trusted) != 1 || trusted[0] != r.plane(p).Authority || issuer != trusted[0] {
			t.Errorf("%s: the Secret trusts %q and is issued by %q", p, trusted, issuer)
		}
	}
	var connection corev1.Secret
	if err := r.fetch(manifests.ConnectionName("demo"), &connection); err != nil {
		t.Fatal(err)
	}
	trusted, err := pki.Bundle(connection.Data[manifests.KeyAuthorities])
	if err != nil || len(trusted) != 1 || pki.Fingerprint(trusted[0]) != r.plane(manifests.PlaneClient).Authority {
		t.Errorf("clients trust %d authorities (%v)", len(trusted), err)
	}
	t.Logf("%d restarts of 3 members, phases %q", r.restarts, phases)
	if r.restarts < 6 || r.restarts > 12 {
		t.Errorf("%d restarts of 3 members", r.restarts)
	}
	restarts, calls := r.restarts, len(r.deeds.writes())
	r.look()
	r.look()
	if r.restarts != restarts {
		t.Error("a member was restarted afterwards")
	}
	if made := r.deeds.writes()[calls:]; slices.ContainsFunc(made,
		func(call string) bool { return strings.Contains(call, "/secrets") || strings.Contains(call, "/pods/") }) {
		t.Errorf("druid does not rest: %q", made)
	}
}

// A value of the annotation requests one replacement, whatever applies it again. Another value requests another one, and can name a plane.
func TestRotationOncePerAnnotationValue(t *testing.T) {
	r := newRotation(t)
	first := r.plane(manifests.PlanePeer).Authority
	r.annotate("peer:1")
	r.until(manifests.PlanePeer, func(s v1alpha1.TLSPlaneStatus) bool { return s.Phase == v1alpha1.TLSStable && s.Authority != first })
	rests := func() {
		t.Helper()
		r.look()
		r.look()
		for p, generation := range map[manifests.Plane]int32{manifests.PlaneClient: 1, manifests.PlanePeer: 2} {
			if s := r.plane(p); s.Phase != v1alpha1.TLSStable || s.Trusted[0].Generation != generation {
				t.Errorf("%s: phase %s, authority %d", p, s.Phase, s.Trusted[0].Generation)
			}
		}
	}
	rests()
	r.patchCluster(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.RotateCAAnnotation))
	rests()
	r.annotate("peer:1")
	rests()
	// The status is lost while the manifest has the annotation.
	r.patchStatus(`{"status":{"tls":null}}`)
	rests()
	if got := r.plane(manifests.PlanePeer).LastHandledRotateCA; got != "peer:1" {
		t.Errorf("handled is %q", got)
	}
	// A request during a replacement is about another authority than the one that is about to sign.
	r.annotate("peer:2")
	r.until(manifests.PlanePeer, func(s v1alpha1.TLSPlaneStatus) bool { return s.Phase == v1alpha1.TLSTrustingBoth })
	r.annotate("peer:3")
	r.until(manifests.PlanePeer, func(s v1alpha1.TLSPlaneStatus) bool {
		return s.Phase == v1alpha1.TLSStable && s.Trusted[0].Generation == 4
	})
	r.annotate(strings.Repeat("x", 300))
	r.look()
	c := r.cluster()
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionCertificatesReady); ready == nil ||
		!strings.Contains(ready.Message, "longer than 253 characters") {
		t.Errorf("the condition is %+v", ready)
	}
}

// The clock of druid has what shows how much time passed, whatever the time of day is set to.
func TestTheClockOfDruidIsMonotonic(t *testing.T) {
	s := newStage(t)
	if now := s.reconciler(s.Client).now().String(); !strings.Contains(now, " m=") {
		t.Errorf("the clock shows %s", now)
	}
}

// TestUnstartedPlaneSurvivesLostSecrets: a plane that lost its Secrets before the first start goes on.
// A cluster whose Secrets were all lost before it started an etcd goes on with another authority.
func TestUnstartedPlaneSurvivesLostSecrets(t *testing.T) {
	for name, claimed := range map[string]bool{"no member has claimed the first start": false, "a member has claimed it": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			stop := s.startDruid()
			s.createSecured()
			names := s.members("demo", 1)
			s.secret(manifests.ConnectionName("demo"), "")
			s.eventually("the status has the authority", func() error {
				if status := manifests.PlaneStatus(s.cluster(), manifests.PlaneClient); status == nil || status.Authority == "" {
					return errors.New("it has not")
				}
				return nil
			})
			stop()
			if claimed {
				s.claimFirstStart(names[0])
			}
			for _, secret := range []string{manifests.AuthorityName("demo", manifests.PlaneClient, 1),
				manifests.CertificatesName("demo", manifests.PlaneClient), manifests.ConnectionName("demo")} {
				if err := s.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: secret}}); err != nil {
					t.Fatal(err)
				}
			}
			s.startDruid()
			if claimed {
				s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonAuthorityLost)
				if err := s.fetch(manifests.AuthorityName("demo", manifests.PlaneClient, 2), &corev1.Secret{}); !apierrors.IsNotFound(err) {
					t.Errorf("another authority was made (%v)", err)
				}
				return
			}
			s.secret(manifests.ConnectionName("demo"), "")
			made := s.secret(manifests.CertificatesName("demo", manifests.PlaneClient), "")
			trusted := readIssued(&made).trusted
			if status := manifests.PlaneStatus(s.cluster(), manifests.PlaneClient); len(trusted) != 1 || len(status.Trusted) != 1 ||
				status.Authority != pki.Fingerprint(trusted[0]) || status.Trusted[0].Generation != 2 {
				t.Errorf("trusted are %d authorities, and the status is %+v", len(trusted), status)
			}
			s.form("demo", names)
			s.reportCertificates(names, "")
			s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid)
		})
	}
}

// claimFirstStart is what the seed's agent does before it starts its etcd for the first time.
func (s *stage) claimFirstStart(name string) {
	s.Helper()
	s.eventually("claim the first start", func() error {
		record, version, err := s.store("demo").Record(s.Context())
		if err != nil {
			return err
		}
		record.Executor = "pod-of-" + name
		_, err = s.store("demo").UpdateRecord(s.Context(), version, record)
		return err
	})
}

// A lost authority is replaced in the same order, and what was lost or restored in the meantime changes nothing.
func TestALostAuthorityIsReplaced(t *testing.T) {
	r := newRotation(t)
	p := manifests.PlaneClient
	first, name := r.plane(p).Authority, manifests.AuthorityName("demo", p, 1)
	var lost corev1.Secret
	if err := r.fetch(name, &lost); err != nil {
		t.Fatal(err)
	}
	r.deleteSecret(name)
	r.at = r.at.Add(certificatesInterval) // the loss shows at the next reading
	r.until(p, func(s v1alpha1.TLSPlaneStatus) bool { return s.Phase == v1alpha1.TLSTrustingBoth })
	if _, issuer := r.delivered(p); issuer != first {
		t.Errorf("the certificate is of %s, want the lost authority %s until the members trust another one", issuer, first)
	}
	// The status is lost: the Secret of the members names the authorities.
	r.patchStatus(`{"status":{"tls":null}}`)
	r.Reconciler.memory = newMemory()
	r.until(p, func(s v1alpha1.TLSPlaneStatus) bool { return len(s.Trusted) == 2 && s.Authority == first })
	// The next authority is lost before it signs: another one takes its place.
	withdrawn := r.plane(p).Trusted[1].Fingerprint
	r.deleteSecret(manifests.AuthorityName("demo", p, 2))
	r.at = r.at.Add(certificatesPause)
	r.until(p, func(s v1alpha1.TLSPlaneStatus) bool { return s.Authority != first })
	// The lost Secret comes back.
	lost.ResourceVersion, lost.UID = "", ""
	if err := r.Create(t.Context(), &lost); err != nil {
		t.Fatal(err)
	}
	r.until(p, func(s v1alpha1.TLSPlaneStatus) bool {
		return s.Phase == v1alpha1.TLSStable && len(s.Trusted) == 1 && s.Authority != first
	})
	if second := r.plane(p).Authority; second == withdrawn {
		t.Errorf("authority %s signs, whose Secret was lost", second)
	}
	if s := r.plane(manifests.PlanePeer); s.Phase != v1alpha1.TLSStable || s.Trusted[0].Generation != 1 {
		t.Errorf("the other plane has phase %s", s.Phase)
	}
}

func TestAuthoritiesInASecretAreThoseOfDruid(t *testing.T) {
	now := time.Now()
	authority := func(name string) (pki.Authority, *x509.Certificate) {
		pair, err := pki.NewAuthority(name, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		a, err := pki.ParseAuthority(pair, now)
		if err != nil {
			t.Fatal(err)
		}
		return a, a.Certificate
	}
	_, one := authority("demo-client-ca-1")
	signer, two := authority("demo-client-ca-2")
	_, other := authority("someone")
	_, peer := authority("demo-peer-ca-3")
	pair, err := signer.Issue(pki.Request{CommonName: "etcd", Lifetime: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	found := planFrom(cluster, manifests.PlaneClient, issuedSecret{trusted: []*x509.Certificate{one, other, two, peer}, leaf: leafIn(pair)})
	if len(found.trusted) != 2 || found.trusted[1].Generation != 2 || found.signing != pki.Fingerprint(two) {
		t.Errorf("found are %v, signed by %s", found.fingerprints(), found.signing)
	}
	if found := planFrom(cluster, manifests.PlaneClient, issuedSecret{trusted: []*x509.Certificate{one}, leaf: leafIn(pair)}); found.signer() != nil {
		t.Error("an authority that signed nothing in the Secret signs")
	}
}
