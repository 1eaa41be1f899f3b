package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestNothingIsSignedThatMembersDoNotTrust(t *testing.T) {
	checkTable(t, certificateRows, "certificates", "Certificates that druid issues: druid/policy.certificateRows",
		func(f certificateFacts, d rules.Decision[certificateVerdict]) string {
			v := d.Verdict
			switch {
			case v == certificatesBegin && f.known != AuthorityNew:
				return "a first authority is made although one can be in use"
			case v == certificatesIssue && f.known != AuthorityKnown:
				return "certificates are issued that the members might not trust"
			case v == certificatesIssue && f.signer != AuthorityPresent && (f.issued&(IssuedOutdated|IssuedDue|IssuedCurrent) == 0 || f.trust == TrustSame):
				return "certificates are issued without an authority"
			case v&(certificatesBegin|certificatesIssue) != 0 && f.issued == IssuedForeign:
				return "a Secret of another owner is written"
			case v == certificatesKeep && f.issued != IssuedCurrent && f.signer == AuthorityPresent:
				return "what is not current stays"
			case v == certificatesKeep && f.trust == TrustOther:
				return "members and clients do not get the trusted authorities"
			}
			return ""
		})
}

// TestCertificatesReadyOnceMembersHave: certificates are ready only when members have them.
func TestCertificatesReadyOnceMembersHave(t *testing.T) {
	checkTable(t, certificatesReadyRows, "certificates-ready", "Condition CertificatesReady: druid/policy.certificatesReadyRows",
		func(f certificatesFacts, d rules.Decision[conditionVerdict]) string {
			switch status := d.Verdict.status; {
			case status == metav1.ConditionTrue && (f.reported != rules.Yes || f.rejected == rules.Yes):
				return "members without good certificates are called ready"
			case status == metav1.ConditionTrue && f.issuing&(certificatesStuck|certificatesConflict|certificatesUnclear|certificatesUninstalled|
				certificatesAwaited) != 0:
				return "certificates that cannot be renewed are called ready"
			}
			return ""
		})
}

// issued is a cluster with TLS of both planes whose members report good certificates.
func issued(now time.Time) (Desired, Observed) {
	d := Desired{Replicas: 1, Planes: []string{"client", "peer"}}
	o := Observed{RecordState: RecordFormed, Record: leases.Record{Phase: leases.PhaseFormed, Members: []string{"c-a"}}}
	for _, plane := range d.Planes {
		o.Certificates = append(o.Certificates, Certificates{
			Plane: plane, Known: AuthorityKnown, Signer: AuthorityPresent, Candidate: AuthorityPresent, Due: rules.No, Urgent: rules.No,
			Requested: rules.No, Held: rules.Yes,
			Issued:  []Issued{{Name: "c-" + plane + "-tls", State: IssuedCurrent, Trust: TrustSame}},
			Trusted: []v1alpha1.TLSAuthority{{Generation: 1, Fingerprint: plane + "-ca", NotAfter: metav1.NewTime(now.Add(time.Hour))}}, Signing: plane + "-ca",
		})
	}
	member := Member{Name: "c-a", Listed: true, Lease: LeaseOurs, Readable: true}
	member.Reports.TLS = leases.TLS{}.With("client", leases.TLSPlane{NotAfter: now.Add(2 * time.Minute)}).With("peer",
		leases.TLSPlane{NotAfter: now.Add(3 * time.Minute)})
	o.Members = []Member{member}
	return d, o
}

// TestStatusFirstExpiryAndAuthority: the status shows the first expiry and the authority.
func TestStatusFirstExpiryAndAuthority(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	d, o := issued(now)
	later := o.Members[0]
	later.Name = "c-b"
	later.Reports.TLS = later.Reports.TLS.With("client", leases.TLSPlane{NotAfter: now.Add(time.Hour)})
	o.Members = append(o.Members, later)
	s := tlsStatus(Evaluate(d, o), nil, metav1.Now())
	if s.Client.Authority != "client-ca" || !s.Client.AuthorityNotAfter.Time.Equal(now.Add(time.Hour)) || !s.Client.NotAfter.Time.Equal(now.Add(2*time.Minute)) {
		t.Errorf("status of clients is %+v", s.Client)
	}
	if s.Peer.Authority != "peer-ca" || !s.Peer.NotAfter.Time.Equal(now.Add(3*time.Minute)) {
		t.Errorf("status of peers is %+v", s.Peer)
	}
	o.Members = nil
	if again := tlsStatus(Evaluate(d, o), s, metav1.Now()); !again.Client.NotAfter.Equal(s.Client.NotAfter) {
		t.Errorf("a date that is unknown now is %v, want it as before", again.Client.NotAfter)
	}
	if tlsStatus(Evaluate(Desired{}, o), s, metav1.Now()) != nil {
		t.Error("a cluster without TLS has status.tls")
	}
}

// What is wrong with the Secret of a client does not keep druid from renewing the certificates of the members.
func TestEachSecretIsIssuedByItself(t *testing.T) {
	d, o := issued(time.Now())
	o.Certificates[0].Issued[0].State = IssuedDue
	o.Certificates[0].Issued = append(o.Certificates[0].Issued,
		Issued{Name: "c-connection", State: IssuedForeign, Trust: TrustOther}, Issued{Name: "c-client-app", State: IssuedAbsent, Trust: TrustOther})
	o.Certificates[1].Signer, o.Certificates[1].Known, o.Certificates[1].Trusted = AuthorityLost, AuthorityNew, nil
	o.Certificates[1].Issued = []Issued{{Name: "c-peer-tls", State: IssuedAbsent, Trust: TrustOther}, {Name: "more", State: IssuedAbsent, Trust: TrustOther}}
	var got []string
	certificateSteps(Evaluate(d, o), func(s Step) { got = append(got, s.Object+" "+s.Rule) })
	want := []string{"c-client-tls certificates-due", "c-client-app certificates-missing", "c-peer-tls authority-missing"}
	if !slices.Equal(got, want) {
		t.Errorf("the steps are %q, want %q", got, want)
	}
}

// The authorities that members use are noted once, when the cluster has formed.
func TestIssuersAreNotedOnce(t *testing.T) {
	d, o := issued(time.Now())
	m := &o.Members[0]
	m.Reports.Role, m.Liveness = leases.RoleLeader, leases.Live
	m.Reports.TLS.Client.Issuer = "a"
	s := tlsStatus(Evaluate(d, o), nil, metav1.Now())
	if !slices.Equal(s.Client.Issuers, []string{"a"}) || len(s.Peer.Issuers) != 0 {
		t.Errorf("issuers are %q and %q", s.Client.Issuers, s.Peer.Issuers)
	}
	m.Reports.TLS.Client.Issuer = "b"
	if s = tlsStatus(Evaluate(d, o), s, metav1.Now()); !slices.Equal(s.Client.Issuers, []string{"a"}) {
		t.Errorf("another one is noted: %q", s.Client.Issuers)
	}
	o.RecordState = RecordForming
	if s = tlsStatus(Evaluate(d, o), nil, metav1.Now()); len(s.Client.Issuers) != 0 {
		t.Errorf("a cluster that has not formed notes %q", s.Client.Issuers)
	}
}

// TestCertificatesReadyNamesProblem: condition CertificatesReady names what is wrong.
func TestCertificatesReadyNamesProblem(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *Desired, o *Observed)
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"all is well": {func(*Desired, *Observed) {}, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid, "All members have certificates."},
		"a member rejects what it got": {func(_ *Desired, o *Observed) {
			o.Members[0].Reports.TLS.Peer.Problem = "tls.key is missing; add it"
		}, metav1.ConditionFalse, v1alpha1.ReasonCertificatesRejected, "The peer certificates of c-a are rejected: tls.key is missing; add it."},
		"the authority is gone": {func(_ *Desired, o *Observed) {
			o.Certificates[1].Known, o.Certificates[1].Signer, o.Certificates[1].Problem = AuthorityUnknown, AuthorityLost, "Secret c-peer-ca-1 does not exist"
		}, metav1.ConditionFalse, v1alpha1.ReasonAuthorityLost, "Secret c-peer-ca-1 does not exist. druid cannot issue the peer certificates"},
		"a Secret is not ours": {func(_ *Desired, o *Observed) {
			o.Certificates[0].Issued = append(o.Certificates[0].Issued, Issued{
				Name: "c-connection", State: IssuedForeign, Trust: TrustOther,
				Problem: "Secret c-connection exists and has another owner. If nothing uses it, delete it. Otherwise give this EtcdCluster another name",
			})
		}, metav1.ConditionFalse, v1alpha1.ReasonObjectNotOwned, "Secret c-connection exists"},
		"cert-manager has not issued, and no member has reported": {func(_ *Desired, o *Observed) {
			o.Members[0].Reports.TLS = leases.TLS{}
			o.Requests = []Request{{Plane: "peer", Name: "c-peer-tls", State: RequestAwaited, Problem: "Issuer x not found"}}
		}, metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending, "cert-manager has not issued Certificate c-peer-tls: Issuer x not found."},
		"cert-manager has not renewed": {func(_ *Desired, o *Observed) {
			o.Requests = []Request{{Plane: "peer", Name: "c-peer-tls", State: RequestAwaited}}
		}, metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending, "cert-manager has not processed Certificate c-peer-tls yet."},
		"there is no cert-manager": {func(_ *Desired, o *Observed) {
			o.Requests = []Request{{Plane: "peer", Name: "c-peer-tls", State: RequestNotServed}}
		}, metav1.ConditionFalse, v1alpha1.ReasonCertManagerNotInstalled, "Install cert-manager."},
		"no member has reported": {func(_ *Desired, o *Observed) {
			o.Members[0].Reports.TLS = leases.TLS{}
		}, metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending, "The certificates are not in place yet."},
	} {
		t.Run(name, func(t *testing.T) {
			d, o := issued(time.Now())
			c.change(&d, &o)
			got, applies := certificatesReady(messageContext{Evaluation: Evaluate(d, o)})
			if message := AsSentences(got.Message); !applies || got.Status != c.status || got.Reason != c.reason || !strings.Contains(message, c.says) {
				t.Errorf("the condition is %s %s: %s", got.Status, got.Reason, message)
			}
		})
	}
	if _, applies := certificatesReady(messageContext{}); applies {
		t.Error("a cluster without TLS has the condition")
	}
}
