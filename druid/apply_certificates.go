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

	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
)

// issueCertificates writes a Secret. It makes the certificate authority only by the rule for a cluster that has none yet, and
// otherwise signs only with the authority that the step was planned for.
func (r *Reconciler) issueCertificates(ctx context.Context, o *observation, step policy.Step) error {
	p, want, found := r.wantedIn(o, step.Object)
	if !found {
		return nil // the spec does not have it any more
	}
	// The next look reads what was written, also if not all of it was.
	defer func() {
		r.memory.certificates.forget(o.cluster.UID, p)
		o.lookAgain(control.StaleCachePause)
	}()
	authority, certificate, err := r.authorityFor(ctx, o, p, step)
	if err != nil || authority == nil {
		return err
	}
	leaf, err := authority.Issue(want.leaf, r.now())
	if err != nil {
		return err
	}
	data := manifests.ConnectionData(o.cluster, leaf, certificate)
	if want.client != nil {
		client, err := authority.Issue(*want.client, r.now())
		if err != nil {
			return err
		}
		data = manifests.MemberData(leaf, client, certificate)
	}
	crash.Before("write-certificates")
	err = r.writeSecret(ctx, o, manifests.TLSSecret(o.cluster, want.name, data))
	crash.After("write-certificates")
	if err != nil {
		return err
	}
	if want.client != nil {
		r.announceCertificates(ctx, o, p)
	}
	return nil
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

// authorityFor returns the authority that signs, and its certificate as PEM. It returns none if the Secret is not the
// one that the step was planned for.
func (r *Reconciler) authorityFor(ctx context.Context, o *observation, p manifests.Plane, step policy.Step) (*pki.Authority, []byte, error) {
	name := manifests.AuthorityName(o.cluster.Name, p)
	if step.MakesAuthority() {
		return r.createAuthority(ctx, o, name)
	}
	secret, err := r.readSecret(ctx, o, name)
	if err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	authority, err := pki.ParseAuthority(pairIn(secret), r.now())
	if err != nil {
		return nil, nil, fmt.Errorf("certificate authority in Secret %s: %w", name, err)
	}
	for _, c := range o.observed.Certificates {
		if c.Plane == string(p) && c.Fingerprint == pki.Fingerprint(authority.Certificate) {
			return &authority, secret.Data[corev1.TLSCertKey], nil
		}
	}
	return nil, nil, nil
}

// createAuthority makes the authority of a plane. If another replica of druid made one meanwhile, that one stays.
func (r *Reconciler) createAuthority(ctx context.Context, o *observation, name string) (*pki.Authority, []byte, error) {
	pair, err := pki.NewAuthority(name, r.now(), manifests.AuthorityLifetime)
	if err != nil {
		return nil, nil, err
	}
	secret := manifests.TLSSecret(o.cluster, name, manifests.PairData(pair))
	secret.Immutable = new(true)
	crash.Before("create-authority")
	err = r.client.Create(ctx, secret, client.FieldOwner(control.FieldOwner))
	crash.After("create-authority")
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("create Secret %s: %w", name, err)
	}
	authority, err := pki.ParseAuthority(pair, r.now())
	return &authority, pair.Certificate, err
}

// writeSecret creates the Secret, or replaces the content of the one that druid made before.
func (r *Reconciler) writeSecret(ctx context.Context, o *observation, secret *corev1.Secret) error {
	err := r.client.Create(ctx, secret.DeepCopy(), client.FieldOwner(control.FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("create Secret %s: %w", secret.Name, err)
		}
		return nil
	}
	live, err := r.readSecret(ctx, o, secret.Name)
	if err != nil {
		return err
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
