package druid

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
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
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// certificatesPause is the time between two reads of Secrets about which something is wrong. druid does not watch
// Secrets, because it may not list them.
const certificatesPause = 30 * time.Second

// planeSecrets is what the Secrets of a plane contained when druid last read them, without private keys.
type planeSecrets struct {
	at time.Time
	// state of the authority, and problem if it is not present.
	state     policy.AuthorityState
	problem   string
	authority *x509.Certificate
	// trusted are the fingerprints of the authorities in the Secret that the agents mount.
	trusted []string
	// leaf is the server certificate of the members, nil if it is missing or unreadable. connections are those of the
	// clients, by Secret.
	leaf            *x509.Certificate
	connections     map[string]connectionSecret
	absent, foreign bool
}

// connectionSecret is what the Secret of a client contains.
type connectionSecret struct {
	leaf      *x509.Certificate
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

// observeCertificates observes the Secrets of each plane whose certificates druid issues. It reads them once, and again
// after it wrote them or while something is wrong.
func (r *Reconciler) observeCertificates(ctx context.Context, o *observation) {
	for _, p := range manifests.Planes(o.cluster) {
		o.desired.Planes = append(o.desired.Planes, string(p))
	}
	issued := manifests.Issued(o.cluster)
	for _, p := range manifests.Planes(o.cluster) {
		lifetime, ours := issued[p]
		if !ours {
			continue
		}
		s, known := r.memory.certificates.get(o.cluster.UID, p)
		if !known || r.doubtful(o, p, s) && r.now().Sub(s.at) >= certificatesPause {
			s = r.readSecrets(ctx, o, p)
			r.memory.certificates.set(o.cluster.UID, p, s)
		}
		if r.doubtful(o, p, s) {
			o.lookAgain(certificatesPause)
		}
		o.observed.Certificates = append(o.observed.Certificates, r.certificatesOf(o, p, s, lifetime))
	}
}

// doubtful says whether the Secrets can have changed without druid.
func (r *Reconciler) doubtful(o *observation, p manifests.Plane, s planeSecrets) bool {
	if s.state != policy.AuthorityPresent || s.foreign {
		return true
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
func (r *Reconciler) certificatesOf(o *observation, p manifests.Plane, s planeSecrets, lifetime time.Duration) policy.Certificates {
	c := policy.Certificates{Plane: string(p), Authority: s.state, Problem: s.problem, Known: r.knownAuthority(o, p, s)}
	if s.state == policy.AuthorityPresent {
		c.Fingerprint, c.NotAfter = pki.Fingerprint(s.authority), s.authority.NotAfter
		if c.Known == policy.AuthorityOther {
			c.Problem = fmt.Sprintf("Secret %s has another certificate authority than the one that the members trust", manifests.AuthorityName(o.cluster.Name, p))
		}
	}
	want := manifests.CertificatesOf(o.cluster, p, r.manifests.ClusterDomain)
	switch {
	case s.foreign:
		c.Issued = policy.IssuedForeign
	case s.absent:
		c.Issued = policy.IssuedAbsent
	case !covers(s.leaf, want.Server, s.authority), r.now().Add(lifetime+time.Minute).Before(s.leaf.NotAfter),
		!s.connect(o.cluster, want.Connections):
		c.Issued = policy.IssuedOutdated
	default:
		c.Issued = policy.IssuedCurrent
		due, left := s.due(lifetime, r.now())
		if due {
			c.Issued = policy.IssuedDue
		}
		o.lookAgain(left)
	}
	return c
}

// due says whether a third of the lifetime of a certificate is left, or less, and otherwise in which time it will be. A certificate
// that ends with its authority is not due: a new one would end then too.
func (s *planeSecrets) due(lifetime time.Duration, now time.Time) (due bool, left time.Duration) {
	leaves := []*x509.Certificate{s.leaf}
	for _, connection := range s.connections {
		leaves = append(leaves, connection.leaf)
	}
	for _, c := range leaves {
		if c == nil || s.authority != nil && !c.NotAfter.Before(s.authority.NotAfter) {
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
	ips := func(all []string) string { slices.Sort(all); return strings.Join(all, ",") }
	var has, wants []string
	for _, ip := range c.IPAddresses {
		has = append(has, ip.String())
	}
	for _, ip := range want.IPs {
		wants = append(wants, ip.String())
	}
	return slices.Equal(c.DNSNames, want.DNSNames) && ips(has) == ips(wants) && c.Subject.CommonName == want.CommonName &&
		slices.Equal(slices.Sorted(slices.Values(c.Subject.Organization)), slices.Sorted(slices.Values(want.Organizations)))
}

// connect says whether the Secrets of all clients are what they should be.
func (s *planeSecrets) connect(cluster *v1alpha1.EtcdCluster, want map[string]pki.Request) bool {
	for name, request := range want {
		if c := s.connections[name]; !covers(c.leaf, request, s.authority) || c.endpoints != endpointsOf(cluster) {
			return false
		}
	}
	return true
}

func endpointsOf(cluster *v1alpha1.EtcdCluster) string {
	return strings.Join(manifests.Endpoints(cluster), ",")
}

// knownAuthority compares the authority with what Secrets and member Leases name.
func (r *Reconciler) knownAuthority(o *observation, p manifests.Plane, s planeSecrets) policy.AuthorityKnown {
	known := slices.Clone(s.trusted)
	for _, m := range o.observed.Members {
		if trusted := tlsOf(m, p).Trusted; trusted != "" {
			known = append(known, strings.Split(trusted, ",")...)
		}
	}
	switch {
	case len(known) == 0 && (o.desired.ClusterID != 0 || o.observed.RecordState&(policy.RecordFormed|policy.RecordRecovering) != 0):
		return policy.AuthorityUnproven
	case len(known) == 0:
		return policy.AuthorityNew
	case s.authority != nil && slices.Contains(known, pki.Fingerprint(s.authority)):
		return policy.AuthoritySame
	default:
		return policy.AuthorityOther
	}
}

// readSecrets reads the Secrets of a plane.
func (r *Reconciler) readSecrets(ctx context.Context, o *observation, p manifests.Plane) planeSecrets {
	s := planeSecrets{at: r.now()}
	name := manifests.AuthorityName(o.cluster.Name, p)
	err := r.visitSecret(ctx, o, name, func(secret *corev1.Secret, foreign error) {
		switch {
		case foreign != nil:
			s.state, s.problem = policy.AuthorityForeign, foreign.Error()
		case secret == nil:
			s.state, s.problem = policy.AuthorityAbsent, fmt.Sprintf("Secret %s does not exist", name)
		default:
			s.readAuthority(secret, r.now())
		}
	})
	issued := map[string]func(*corev1.Secret){manifests.CertificatesName(o.cluster.Name, p): s.readCertificates}
	for name := range manifests.CertificatesOf(o.cluster, p, r.manifests.ClusterDomain).Connections {
		issued[name] = s.readConnection
	}
	for name, read := range issued {
		err = errors.Join(err, r.visitSecret(ctx, o, name, func(secret *corev1.Secret, foreign error) {
			switch {
			case foreign != nil:
				s.foreign, s.problem = true, foreign.Error()
			case secret == nil:
				s.absent = true
			default:
				read(secret)
			}
		}))
	}
	if err != nil {
		return planeSecrets{at: s.at, state: policy.AuthorityUnread, problem: oneLine(err.Error())}
	}
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

func (s *planeSecrets) readCertificates(secret *corev1.Secret) {
	s.leaf = leafIn(secret)
	authorities, err := pki.Bundle(secret.Data[manifests.KeyAuthorities])
	if err != nil {
		return // the certificates are issued again
	}
	for _, authority := range authorities {
		s.trusted = append(s.trusted, pki.Fingerprint(authority))
	}
}

func (s *planeSecrets) readConnection(secret *corev1.Secret) {
	if s.connections == nil {
		s.connections = map[string]connectionSecret{}
	}
	s.connections[secret.Name] = connectionSecret{leafIn(secret), string(secret.Data[manifests.KeyEndpoints])}
}

func (s *planeSecrets) readAuthority(secret *corev1.Secret, now time.Time) {
	authority, err := pki.ParseAuthority(pairIn(secret), now)
	if err != nil {
		s.state, s.problem = policy.AuthorityUnusable, fmt.Sprintf("Secret %s: %s", secret.Name, err)
		return
	}
	s.state, s.authority = policy.AuthorityPresent, authority.Certificate
}

func pairIn(secret *corev1.Secret) pki.Pair {
	return pki.Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

// leafIn returns the certificate in the Secret, or nil if there is no valid pair.
func leafIn(secret *corev1.Secret) *x509.Certificate {
	leaf, err := pki.Leaf(pairIn(secret))
	if err != nil {
		return nil
	}
	return leaf
}

// emptyPatch changes nothing and returns the object. So druid reads its own Secrets without the permission to get all
// Secrets.
var emptyPatch = client.RawPatch(types.MergePatchType, []byte("{}"))

// readSecret returns a Secret of the cluster. If it belongs to someone else, the error is a foreignError.
func (r *Reconciler) readSecret(ctx context.Context, o *observation, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.Namespace, Name: name}}
	err := r.client.Patch(ctx, secret, emptyPatch, client.FieldOwner(control.FieldOwner))
	switch {
	// The admission policy of the installation lets druid touch only Secrets that it made.
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), err == nil && !ours(o.cluster, secret):
		return nil, &foreignError{kind: "Secret", name: name}
	case apierrors.IsNotFound(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return secret, nil
}
