package druid

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
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

// planeSecrets is what the Secrets of a plane contained when druid last read them, without private keys.
type planeSecrets struct {
	at time.Time
	// question is what they were read for. Another one is answered by another reading.
	question string
	authorities
	// issued are the Secrets with certificates, by name.
	issued map[string]issuedSecret
}

// issuedSecret is what a Secret with certificates contains.
type issuedSecret struct {
	// state is IssuedCurrent for a Secret that could be read, whatever it contains.
	state   policy.IssuedState
	problem string
	// leaf belongs to tls.key, and client to client.key. nil: missing or unreadable.
	leaf, client *x509.Certificate
	// trusted are the authorities in ca.crt.
	trusted   []*x509.Certificate
	endpoints string
}

// certificateMemory keeps what the Secrets contained, so that a cluster at rest costs no request.
type certificateMemory struct {
	mu   sync.Mutex
	seen map[types.UID]map[manifests.Plane]planeSecrets
}

func (m *certificateMemory) get(cluster types.UID, p manifests.Plane) (planeSecrets, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.seen[cluster][p]
	return s, known
}

func (m *certificateMemory) set(cluster types.UID, p manifests.Plane, s planeSecrets) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[types.UID]map[manifests.Plane]planeSecrets{}
	}
	if m.seen[cluster] == nil {
		m.seen[cluster] = map[manifests.Plane]planeSecrets{}
	}
	m.seen[cluster][p] = s
}

func (m *certificateMemory) forget(cluster types.UID, p manifests.Plane) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen[cluster], p)
}

func (m *certificateMemory) forgetCluster(cluster types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, cluster)
}

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
	if s.signer.state != policy.AuthorityPresent || len(s.plan.trusted) != 1 {
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
			if s.plan.is(has.trusted) && (w.client != nil || has.endpoints == endpointsOf(o.cluster)) {
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

// readSecrets reads the Secrets of a plane.
func (r *Reconciler) readSecrets(ctx context.Context, o *observation, p manifests.Plane, want []wantedSecret, q question) planeSecrets {
	s := planeSecrets{at: r.now(), question: q.text(), issued: map[string]issuedSecret{}}
	for _, w := range want {
		var has issuedSecret
		err := r.visitSecret(ctx, o, w.name, func(secret *corev1.Secret, foreign error) {
			switch {
			case foreign != nil:
				has = issuedSecret{state: policy.IssuedForeign, problem: foreign.Error()}
			case secret == nil:
				has = issuedSecret{state: policy.IssuedAbsent}
			default:
				has = readIssued(secret)
			}
		})
		if err != nil {
			has = issuedSecret{state: policy.IssuedUnread, problem: oneLine(err.Error())}
		}
		s.issued[w.name] = has
	}
	s.authorities = r.readAuthorities(ctx, o, p, s.issued[want[0].name], q)
	return s
}

// visitSecret calls visit with the Secret, with nil if it does not exist, or with an error if it belongs to someone
// else.
func (r *Reconciler) visitSecret(ctx context.Context, o *observation, name string, visit func(secret *corev1.Secret, foreign error)) error {
	secret, err := r.readSecret(ctx, o, name)
	switch {
	case apierrors.IsNotFound(err):
		visit(nil, nil)
	case isForeign(err):
		visit(nil, err)
	case err != nil:
		return err
	default:
		visit(secret, nil)
	}
	return nil
}

// readIssued reads what there is. What is missing or damaged is issued again.
func readIssued(secret *corev1.Secret) issuedSecret {
	has := issuedSecret{
		state: policy.IssuedCurrent, leaf: leafIn(pairIn(secret)), endpoints: string(secret.Data[manifests.KeyEndpoints]),
		client: leafIn(clientPairIn(secret)),
	}
	if trusted, err := pki.Bundle(secret.Data[manifests.KeyAuthorities]); err == nil {
		has.trusted = trusted
	}
	return has
}

func pairIn(secret *corev1.Secret) pki.Pair {
	return pki.Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

func clientPairIn(secret *corev1.Secret) pki.Pair {
	return pki.Pair{Certificate: secret.Data[manifests.KeyClient], Key: secret.Data[manifests.KeyClientKey]}
}

// leafIn returns the certificate of the pair, or nil if the pair is not one.
func leafIn(pair pki.Pair) *x509.Certificate {
	leaf, err := pki.Leaf(pair)
	if err != nil {
		return nil
	}
	return leaf
}

// emptyPatch changes nothing and returns the object. So druid reads its own Secrets without the permission to get all
// Secrets.
var emptyPatch = client.RawPatch(types.MergePatchType, []byte("{}"))

// secretsPolicy is the name of the admission policy in the installation.
const secretsPolicy = "druid-secrets"

// readSecret returns a Secret of the cluster. If it belongs to someone else, the error is a foreignError.
func (r *Reconciler) readSecret(ctx context.Context, o *observation, name string) (*corev1.Secret, error) {
	secret, err := r.patchNothing(ctx, o, name)
	if err == nil && !ours(o.cluster, secret) {
		return nil, &foreignError{kind: "Secret", name: name}
	}
	return secret, err
}

// patchNothing returns a Secret. If druid may not read it, the error is a foreignError.
func (r *Reconciler) patchNothing(ctx context.Context, o *observation, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: name}}
	err := r.client.Patch(ctx, secret, emptyPatch, client.FieldOwner(control.FieldOwner))
	switch {
	// The admission policy of the installation lets druid touch only Secrets that it made.
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+secretsPolicy+"'"):
		return nil, &foreignError{kind: "Secret", name: name}
	case apierrors.IsNotFound(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return secret, nil
}
