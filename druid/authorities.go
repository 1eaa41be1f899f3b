package druid

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
)

// plan are the certificate authorities of a plane that members and clients are to trust, and the fingerprint of the one that signs.
type plan struct {
	trusted []v1alpha1.TLSAuthority
	signing string
}

// planIn returns the plan in the status, which is empty before the first one was written.
func planIn(cluster *v1alpha1.EtcdCluster, p manifests.Plane) plan {
	if s := manifests.PlaneStatus(cluster, p); s != nil {
		return plan{s.Trusted, s.Authority}
	}
	return plan{}
}

func (p plan) fingerprints() []string {
	var all []string
	for _, a := range p.trusted {
		all = append(all, a.Fingerprint)
	}
	return all
}

// is says whether the certificates are those of the trusted authorities, in their order.
func (p plan) is(trusted []*x509.Certificate) bool {
	return slices.EqualFunc(p.trusted, trusted, func(a v1alpha1.TLSAuthority, c *x509.Certificate) bool { return a.Fingerprint == pki.Fingerprint(c) })
}

// signer is the authority that signs, or nil.
func (p plan) signer() *v1alpha1.TLSAuthority {
	i := slices.IndexFunc(p.trusted, func(a v1alpha1.TLSAuthority) bool { return a.Fingerprint == p.signing })
	if i < 0 {
		return nil
	}
	return &p.trusted[i]
}

// end is when the authority that signs expires.
func (p plan) end() time.Time {
	if s := p.signer(); s != nil {
		return s.NotAfter.Time
	}
	return time.Time{}
}

// bundle is the content of ca.crt.
func (p plan) bundle() []byte {
	var all []byte
	for _, a := range p.trusted {
		all = append(all, a.Certificate...)
	}
	return all
}

func authorityOf(generation int32, certificate *x509.Certificate) v1alpha1.TLSAuthority {
	return v1alpha1.TLSAuthority{
		Generation: generation, Fingerprint: pki.Fingerprint(certificate), NotAfter: metav1.NewTime(certificate.NotAfter),
		Certificate: string(pki.Encode([]*x509.Certificate{certificate})),
	}
}

// question is what druid wants to know of the authorities.
type question struct {
	plan plan
	// replace says that another authority is wanted even if the one that signs is there.
	replace bool
	// lifetime of a new authority.
	lifetime time.Duration
}

func (q question) text() string {
	return fmt.Sprint(q.plan.fingerprints(), q.plan.signing, q.replace, q.lifetime)
}

func (r *Reconciler) questionOf(o *observation, p manifests.Plane, lifetimes manifests.Lifetimes) question {
	q := question{plan: planIn(o.cluster, p), replace: unhandled(o.cluster, p), lifetime: lifetimes.Authority}
	if at := q.plan.end(); !at.IsZero() {
		q.replace = q.replace || r.ends(o, at, lifetimes.Authority/3)
	}
	return q
}

// authorities is what is known of the authorities of a plane.
type authorities struct {
	plan  plan
	known policy.AuthorityKnowledge
	// signer is the Secret of the authority that signs, candidate that of the last one of the plan.
	signer, candidate authoritySecret
	next              policy.NextAuthority
	// blocked says why there can be no next authority, or is empty.
	blocked string
}

// authoritySecret is a Secret with a certificate authority.
type authoritySecret struct {
	state   policy.AuthorityState
	problem string
	// absent says that there is no such Secret.
	absent      bool
	certificate *x509.Certificate
}

// readAuthorities finds the authorities in use, and reads the Secrets from which they sign. The status names them. Where it does
// not, because druid has issued nothing yet or the status was lost, the Secret of the members or their Leases do.
func (r *Reconciler) readAuthorities(ctx context.Context, o *observation, p manifests.Plane, members issuedSecret, q question) authorities {
	a := authorities{plan: q.plan, known: policy.AuthorityKnown, candidate: authoritySecret{state: policy.AuthorityPresent}}
	if a.plan.signer() == nil {
		a.plan = planFrom(o.cluster, p, members)
	}
	if a.plan.signer() == nil {
		a.findByLeases(ctx, r, o, p)
	}
	if a.signer.state == policy.AuthorityUnread {
		return a
	}
	if s := a.plan.signer(); s != nil {
		a.signer = r.readAuthority(ctx, o, p, *s)
		if last := a.plan.trusted[len(a.plan.trusted)-1]; last.Fingerprint != a.plan.signing {
			a.candidate = r.readAuthority(ctx, o, p, last)
		}
	}
	if a.known == policy.AuthorityNew || a.known == policy.AuthorityKnown && (q.replace || a.signer.state == policy.AuthorityLost) {
		r.findNext(ctx, o, p, &a, q.lifetime)
	}
	return a
}

// planFrom returns the authorities in the Secret of the members, if druid made them and the certificate is of one of them.
func planFrom(cluster *v1alpha1.EtcdCluster, p manifests.Plane, members issuedSecret) plan {
	var found plan
	for _, c := range members.trusted {
		generation := manifests.AuthorityGeneration(cluster.Name, p, c.Subject.CommonName)
		if generation == 0 || slices.ContainsFunc(found.trusted, func(a v1alpha1.TLSAuthority) bool { return a.Generation >= generation }) {
			continue
		}
		found.trusted = append(found.trusted, authorityOf(generation, c))
		if members.leaf != nil && members.leaf.CheckSignatureFrom(c) == nil {
			found.signing = pki.Fingerprint(c)
		}
	}
	return found
}

// maxGenerations bounds the Secrets that are read where neither the status nor a Secret names the authorities.
const maxGenerations = 16

// findByLeases looks for the authority whose certificates the members use, where only their Leases name it.
func (a *authorities) findByLeases(ctx context.Context, r *Reconciler, o *observation, p manifests.Plane) {
	a.plan = plan{}
	var trusted, issuers []string
	for _, m := range o.observed.Members {
		t := tlsOf(m, p)
		issuers = append(issuers, t.Issuer)
		if t.Trusted != "" {
			trusted = append(trusted, strings.Split(t.Trusted, ",")...)
		}
	}
	formed := o.desired.ClusterID != 0 || o.observed.RecordState&(policy.RecordFormed|policy.RecordRecovering) != 0
	a.signer = authoritySecret{state: policy.AuthorityLost, problem: fmt.Sprintf("Secret %s does not exist", manifests.AuthorityName(o.cluster.Name, p, 1))}
	if len(trusted) == 0 && (!formed || o.adds(p)) {
		a.known = policy.AuthorityNew
		return
	}
	a.known = policy.AuthorityUnknown
	a.findTrusted(ctx, r, o, p, trusted, issuers)
}

// findTrusted reads the Secrets of the authorities in their order, and keeps those that the members trust. If it is not known which they
// trust, it keeps all up to the first one that does not exist.
func (a *authorities) findTrusted(ctx context.Context, r *Reconciler, o *observation, p manifests.Plane, trusted, issuers []string) {
	for generation := int32(1); generation <= maxGenerations; generation++ {
		s := r.readAuthority(ctx, o, p, v1alpha1.TLSAuthority{Generation: generation})
		switch s.state {
		case policy.AuthorityUnread:
			a.signer = s
			return
		case policy.AuthorityLost:
			if generation == 1 || !s.absent {
				a.signer = s
			}
			if s.absent && len(trusted) == 0 {
				return
			}
			continue // a user may delete the Secret of an authority that is trusted no more
		default:
		}
		fingerprint := pki.Fingerprint(s.certificate)
		if len(trusted) > 0 && !slices.Contains(trusted, fingerprint) {
			a.signer.problem = fmt.Sprintf("Secret %s has another certificate authority than the one that the members trust",
				manifests.AuthorityName(o.cluster.Name, p, generation))
			continue
		}
		a.known = policy.AuthorityKnown
		a.plan.trusted = append(a.plan.trusted, authorityOf(generation, s.certificate))
		if a.plan.signing == "" || slices.Contains(issuers, fingerprint) {
			a.plan.signing = fingerprint
		}
	}
}

// readAuthority reads the Secret of an authority. An authority without a fingerprint is any one of that generation.
func (r *Reconciler) readAuthority(ctx context.Context, o *observation, p manifests.Plane, authority v1alpha1.TLSAuthority) (s authoritySecret) {
	name := manifests.AuthorityName(o.cluster.Name, p, authority.Generation)
	s.state = policy.AuthorityLost
	err := r.visitSecret(ctx, o, name, func(secret *corev1.Secret, foreign error) {
		switch {
		case foreign != nil:
			s.problem = fmt.Sprintf("Secret %s does not belong to this EtcdCluster", name)
		case secret == nil:
			s.absent, s.problem = true, fmt.Sprintf("Secret %s does not exist", name)
		default:
			s.parse(secret, authority, r.now())
		}
	})
	if err != nil {
		s = authoritySecret{state: policy.AuthorityUnread, problem: oneLine(err.Error())}
	}
	return s
}

func (s *authoritySecret) parse(secret *corev1.Secret, authority v1alpha1.TLSAuthority, now time.Time) {
	parsed, err := pki.ParseAuthority(pairIn(secret), now)
	switch {
	case err != nil:
		s.problem = fmt.Sprintf("Secret %s: %s", secret.Name, err)
	case authority.Fingerprint != "" && pki.Fingerprint(parsed.Certificate) != authority.Fingerprint:
		s.problem = fmt.Sprintf("Secret %s has another certificate authority than the one that the members trust", secret.Name)
	default:
		s.state, s.certificate = policy.AuthorityPresent, parsed.Certificate
	}
}

// maxSkipped bounds the Secrets of another owner, or with an authority that cannot be used, that druid passes over.
const maxSkipped = 8

// findNext finds the authority that comes after the plan. It passes over a Secret from which it could not sign, or not for long.
func (r *Reconciler) findNext(ctx context.Context, o *observation, p manifests.Plane, a *authorities, lifetime time.Duration) {
	last := int32(0)
	for _, trusted := range a.plan.trusted {
		last = max(last, trusted.Generation)
	}
	for generation := last + 1; generation <= last+maxSkipped; generation++ {
		s := r.readAuthority(ctx, o, p, v1alpha1.TLSAuthority{Generation: generation})
		switch {
		case s.state == policy.AuthorityUnread:
			a.signer = s
			return
		case s.absent:
			a.next = policy.NextAuthority{Generation: generation}
			return
		case s.state == policy.AuthorityPresent && s.certificate.NotAfter.Sub(r.now()) > lifetime*2/3:
			found := authorityOf(generation, s.certificate)
			a.next = policy.NextAuthority{Generation: generation, Authority: &found}
			return
		}
	}
	a.blocked = fmt.Sprintf("druid cannot make another certificate authority for the plane %s: the Secrets %s to %s exist, and belong to "+
		"others or cannot be used. Delete those that nothing uses", p, manifests.AuthorityName(o.cluster.Name, p, last+1),
		manifests.AuthorityName(o.cluster.Name, p, last+maxSkipped))
}
