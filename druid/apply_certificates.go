package druid

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
)

// issueCertificates writes a Secret. Certificates in it that are good stay, and so do those that no authority can replace.
func (r *Reconciler) issueCertificates(ctx context.Context, o *observation, step policy.Step) error {
	p, want, found := r.wantedIn(o, step.Object)
	if !found {
		return nil // the spec does not have it any more
	}
	// The next look reads what was written, also if not all of it was.
	defer r.lookAtSecrets(o, p)
	signs, authority, err := r.signerFor(ctx, o, p, step)
	if err != nil || signs.signer() == nil {
		return err
	}
	live, err := r.readSecret(ctx, o, want.name)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	data, err := r.contentOf(o, p, want, live, signs, authority)
	if err != nil || data == nil {
		return err
	}
	crash.Before("write-certificates")
	err = r.writeSecret(ctx, manifests.TLSSecret(o.cluster, want.name, data), live)
	crash.After("write-certificates")
	if err != nil {
		return err
	}
	if want.client != nil {
		r.announceCertificates(ctx, o, p)
	}
	return nil
}

// lookAtSecrets makes the next pass come soon, and read the Secrets.
func (r *Reconciler) lookAtSecrets(o *observation, p manifests.Plane) {
	r.memory.certificates.forget(o.cluster.UID, p)
	o.lookAgain(control.StaleCachePause)
}

// contentOf returns the content of a Secret, or nil if there is nothing to write.
func (r *Reconciler) contentOf(o *observation, p manifests.Plane, want wantedSecret, live *corev1.Secret, signs plan,
	authority *pki.Authority) (map[string][]byte, error) {
	var server, client pki.Pair
	keeps := authority == nil
	if live != nil {
		server, client = pairIn(live), clientPairIn(live)
		has := readIssued(live)
		if authority != nil {
			state, _ := r.compare(authority.Certificate, has, want, manifests.Issued(o.cluster)[p].Leaf)
			keeps = state == policy.IssuedCurrent
		} else if has.leaf == nil || want.client != nil && has.client == nil {
			return nil, nil
		}
	}
	if keeps && live == nil {
		return nil, nil
	}
	if !keeps {
		var err error
		if server, err = authority.Issue(want.leaf, r.now()); err != nil {
			return nil, err
		}
		if want.client != nil {
			if client, err = authority.Issue(*want.client, r.now()); err != nil {
				return nil, err
			}
		}
	}
	if want.client != nil {
		return manifests.MemberData(server, client, signs.bundle()), nil
	}
	return manifests.ConnectionData(o.cluster, server, signs.bundle()), nil
}

// wantedIn finds the Secret among those of the planes whose certificates druid issues.
func (r *Reconciler) wantedIn(o *observation, name string) (manifests.Plane, wantedSecret, bool) {
	for p := range manifests.Issued(o.cluster) {
		for _, want := range wanted(o.cluster, p, r.manifests.ClusterDomain) {
			if want.name == name {
				return p, want, true
			}
		}
	}
	return "", wantedSecret{}, false
}

// announceCertificates makes the kubelets update the mounted Secret at once. If it fails, they do so within about a minute.
func (r *Reconciler) announceCertificates(ctx context.Context, o *observation, p manifests.Plane) {
	at := r.now().UTC().Format(time.RFC3339)
	for name, pod := range o.pods {
		if !ours(o.cluster, pod) {
			continue
		}
		patch := metadataPatch{UID: string(pod.UID), Annotations: map[string]*string{manifests.AnnotationCertificates + string(p): &at}}
		if err := client.IgnoreNotFound(r.patchMetadata(ctx, pod.DeepCopy(), patch)); err != nil {
			r.log.WarnContext(ctx, "certificates not announced", "namespace", o.cluster.Namespace, "cluster", o.cluster.Name, "member", name, "err", err)
		}
	}
}

// signerFor returns the plan, and the authority that signs. The plan is empty if it is not what the step was planned for, and the
// authority is nil if it is lost.
func (r *Reconciler) signerFor(ctx context.Context, o *observation, p manifests.Plane, step policy.Step) (plan, *pki.Authority, error) {
	c, found := certificatesIn(o, p)
	if !found {
		return plan{}, nil, nil
	}
	signs := plan{c.Trusted, c.Signing}
	if step.MakesAuthority() {
		first, err := r.makeAuthority(ctx, o, p, c.Next)
		if err != nil || first == nil {
			return plan{}, nil, err
		}
		signs = plan{[]v1alpha1.TLSAuthority{*first}, first.Fingerprint}
	}
	signer := signs.signer()
	if signer == nil {
		return plan{}, nil, nil
	}
	name := manifests.AuthorityName(o.cluster.Name, p, signer.Generation)
	secret, err := r.readSecret(ctx, o, name)
	switch {
	case apierrors.IsNotFound(err) || isForeign(err):
		return signs, nil, nil
	case err != nil:
		return plan{}, nil, err
	}
	authority, err := pki.ParseAuthority(pairIn(secret), r.now())
	if err != nil || pki.Fingerprint(authority.Certificate) != signer.Fingerprint {
		return signs, nil, nil //nolint:nilerr // it cannot sign, which the next look reports
	}
	return signs, &authority, nil
}

func certificatesIn(o *observation, p manifests.Plane) (policy.Certificates, bool) {
	for _, c := range o.observed.Certificates {
		if c.Plane == string(p) {
			return c, true
		}
	}
	return policy.Certificates{}, false
}

// createAuthority makes the next authority of a plane. The status lists it in the next pass.
func (r *Reconciler) createAuthority(ctx context.Context, o *observation, step policy.Step) error {
	p := manifests.Plane(step.Object)
	c, found := certificatesIn(o, p)
	if !found || c.Next.Generation == 0 {
		return nil
	}
	defer r.lookAtSecrets(o, p)
	_, err := r.makeAuthority(ctx, o, p, c.Next)
	return err
}

// makeAuthority returns the next authority, and makes it if it does not exist. If another replica of druid made one meanwhile, that
// one stays, and nothing is returned.
func (r *Reconciler) makeAuthority(ctx context.Context, o *observation, p manifests.Plane, next policy.NextAuthority) (*v1alpha1.TLSAuthority, error) {
	if next.Authority != nil || next.Generation == 0 {
		return next.Authority, nil
	}
	name := manifests.AuthorityName(o.cluster.Name, p, next.Generation)
	pair, err := pki.NewAuthority(name, r.now(), manifests.Issued(o.cluster)[p].Authority)
	if err != nil {
		return nil, err
	}
	secret := manifests.TLSSecret(o.cluster, name, manifests.PairData(pair))
	secret.Immutable = new(true)
	crash.Before("create-authority")
	err = r.client.Create(ctx, secret, client.FieldOwner(control.FieldOwner))
	crash.After("create-authority")
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("create Secret %s: %w", name, err)
	}
	authority, err := pki.ParseAuthority(pair, r.now())
	if err != nil {
		return nil, err
	}
	made := authorityOf(next.Generation, authority.Certificate)
	return &made, nil
}

// writeSecret creates the Secret, or replaces the content of live.
func (r *Reconciler) writeSecret(ctx context.Context, secret, live *corev1.Secret) error {
	if live == nil {
		if err := r.client.Create(ctx, secret, client.FieldOwner(control.FieldOwner)); err != nil {
			return fmt.Errorf("create Secret %s: %w", secret.Name, err)
		}
		return nil
	}
	patch := map[string]any{"metadata": metadataPatch{UID: string(live.UID), ResourceVersion: live.ResourceVersion}, "data": secret.Data}
	if err := r.mergePatch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}}, patch); err != nil {
		return fmt.Errorf("write Secret %s: %w", secret.Name, err)
	}
	return nil
}

// isForeign says whether an object belongs to someone else.
func isForeign(err error) bool {
	var foreign *foreignError
	return errors.As(err, &foreign)
}
