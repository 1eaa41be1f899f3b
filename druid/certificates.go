package druid

import (
	"context"
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

const (
	// certificatesPause is the time between two reads of Secrets about which something is wrong. druid does not watch
	// Secrets, because it may not list them.
	certificatesPause = 30 * time.Second
	// certificatesInterval is the time between two reads of Secrets about which nothing is known to be wrong: nothing reports
	// the loss of a Secret that only clients use.
	certificatesInterval = time.Hour
)

// observeCertificates observes the Secrets of each plane whose certificates druid issues. It reads them seldom, and again
// after it wrote them or while something is wrong.
func (r *Reconciler) observeCertificates(ctx context.Context, o *observation) {
	issued := manifests.Issued(o.cluster)
	for _, p := range manifests.Planes(o.cluster) {
		o.desired.Planes = append(o.desired.Planes, string(p))
		lifetimes, ours := issued[p]
		if !ours {
			continue
		}
		want := wanted(o.cluster, p, r.manifests.ClusterDomain)
		q := r.questionOf(o, p, lifetimes)
		s, known := r.memory.certificates.get(o.cluster.UID, p)
		pause := certificatesInterval
		if s.doubtful(o, p, want) {
			pause = certificatesPause
		}
		if !known || s.question != q.text() || r.now().Sub(s.at) >= pause {
			s = r.readSecrets(ctx, o, p, want, q)
			r.memory.certificates.set(o.cluster.UID, p, s)
		}
		o.lookAgain(pause)
		if s.blocked != "" {
			o.observed.Problems = append(o.observed.Problems, policy.Problem{Reason: v1alpha1.ReasonObjectNotOwned, Message: s.blocked})
		}
		o.observed.Certificates = append(o.observed.Certificates, r.certificatesOf(o, p, s, want, lifetimes))
	}
	o.observed.BadRotation = badRotation(o.cluster)
}

// wantedSecret is what druid writes into a Secret with certificates.
type wantedSecret struct {
	name string
	// leaf is the request for tls.crt. client is that for client.crt, nil in the Secret of a client.
	leaf   pki.Request
	client *pki.Request
}

// wanted returns the Secrets of a plane: that of the members first, then those of the clients by name.
func wanted(cluster *v1alpha1.EtcdCluster, p manifests.Plane, domain string) []wantedSecret {
	c := manifests.CertificatesOf(cluster, p, domain)
	all := []wantedSecret{{manifests.CertificatesName(cluster.Name, p), c.Server, &c.Client}}
	for _, name := range slices.Sorted(maps.Keys(c.Connections)) {
		all = append(all, wantedSecret{name, c.Connections[name], nil})
	}
	return all
}

// doubtful says whether something is wrong with the Secrets, they change, or a member does not use what they contain.
func (s *planeSecrets) doubtful(o *observation, p manifests.Plane, want []wantedSecret) bool {
	if s.signer.state != policy.AuthorityPresent || len(s.plan.trusted) != 1 || s.blocked != "" {
		return true
	}
	for _, w := range want {
		if s.issued[w.name].state != policy.IssuedCurrent {
			return true
		}
	}
	return slices.ContainsFunc(o.observed.Members, func(m policy.Member) bool { return m.Listed && tlsOf(m, p).Problem != "" })
}

func tlsOf(m policy.Member, p manifests.Plane) leases.TLSPlane {
	if p == manifests.PlanePeer {
		return m.Reports.TLS.Peer
	}
	return m.Reports.TLS.Client
}

// certificatesOf compares the Secrets with what they should contain.
func (r *Reconciler) certificatesOf(o *observation, p manifests.Plane, s planeSecrets, want []wantedSecret, lifetimes manifests.Lifetimes) policy.Certificates {
	c := policy.Certificates{
		Plane: string(p), Known: s.known, Trusted: s.plan.trusted, Signing: s.plan.signing, Next: s.next,
		Signer: s.signer.state, Candidate: s.candidate.state, Problem: s.signer.problem,
		Due: rules.No, Request: rotationRequest(o.cluster, p), Requested: rules.YesNoOf(unhandled(o.cluster, p)),
	}
	held, counted := r.held(o, p, lifetimes.Hold)
	c.Held, c.HeldFor = rules.YesNoOf(held), counted
	for _, w := range want {
		has := s.issued[w.name]
		issued := policy.Issued{Name: w.name, State: has.state, Trust: policy.TrustOther, Problem: has.problem}
		if has.state == policy.IssuedCurrent {
			var left time.Duration
			issued.State, left = r.compare(s.signer.certificate, has, w, lifetimes.Leaf)
			o.lookAgain(left)
			if s.plan.is(has.trusted) && (w.client != nil || has.endpoints == endpointsOf(o.cluster) && has.kind == manifests.ConnectionType) {
				issued.Trust = policy.TrustSame
			}
		}
		c.Issued = append(c.Issued, issued)
	}
	ends := false
	if at := s.plan.end(); !at.IsZero() {
		c.Due = rules.YesNoOf(r.ends(o, at, lifetimes.Authority/3))
		ends = r.ends(o, at, lifetimes.Authority/urgentPart)
	}
	if leaf := s.issued[want[0].name].leaf; leaf != nil && s.signer.state == policy.AuthorityLost {
		ends = r.ends(o, leaf.NotAfter, lifetimes.Leaf/urgentPart) || ends
	}
	c.Urgent = rules.YesNoOf(r.urgent(o, p, ends, lifetimes.Hold))
	return c
}

// urgentPart of a lifetime that is left is so little that druid waits for no client.
const urgentPart = 10

// ends says whether only left or less is left until at.
func (r *Reconciler) ends(o *observation, at time.Time, left time.Duration) bool {
	until := at.Add(-left).Sub(r.now())
	o.lookAgain(until)
	return until <= 0
}

// compare says whether a Secret contains the certificates that are wanted, and in which time it is due if not before.
func (r *Reconciler) compare(signer *x509.Certificate, has issuedSecret, want wantedSecret, lifetime time.Duration) (policy.IssuedState, time.Duration) {
	leaves, requests := []*x509.Certificate{has.leaf}, []pki.Request{want.leaf}
	if want.client != nil {
		leaves, requests = append(leaves, has.client), append(requests, *want.client)
	}
	for i, leaf := range leaves {
		switch {
		case leaf == nil:
			return policy.IssuedAbsent, 0
		case !covers(leaf, requests[i], signer):
			return policy.IssuedOutdated, 0
		}
	}
	if r.now().Add(lifetime + time.Minute).Before(has.leaf.NotAfter) {
		return policy.IssuedOutdated, 0
	}
	due, left := dueOf(leaves, signer, lifetime, r.now())
	if due {
		return policy.IssuedDue, 0
	}
	return policy.IssuedCurrent, left
}

// dueOf says whether a third of the lifetime of a certificate is left, or less, and otherwise in which time it will be. A
// certificate that ends with its authority is not due: a new one would end then too.
func dueOf(leaves []*x509.Certificate, authority *x509.Certificate, lifetime time.Duration, now time.Time) (due bool, left time.Duration) {
	for _, c := range leaves {
		if authority != nil && !c.NotAfter.Before(authority.NotAfter) {
			continue
		}
		until := c.NotAfter.Add(-lifetime / 3).Sub(now)
		if until <= 0 {
			return true, 0
		}
		if left == 0 || until < left {
			left = until
		}
	}
	return false, left
}

// covers says whether the certificate is what the request asks for, signed by the authority.
func covers(c *x509.Certificate, want pki.Request, authority *x509.Certificate) bool {
	if c == nil || authority != nil && c.CheckSignatureFrom(authority) != nil {
		return false
	}
	text := func(ips []net.IP) string {
		var all []string
		for _, ip := range ips {
			all = append(all, ip.String())
		}
		slices.Sort(all)
		return strings.Join(all, ",")
	}
	return slices.Equal(c.DNSNames, want.DNSNames) && text(c.IPAddresses) == text(want.IPs) && c.Subject.CommonName == want.CommonName &&
		slices.Equal(slices.Sorted(slices.Values(c.Subject.Organization)), slices.Sorted(slices.Values(want.Organizations)))
}

func endpointsOf(cluster *v1alpha1.EtcdCluster) string {
	return strings.Join(manifests.Endpoints(cluster), ",")
}
