package druid

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
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
	trusted []*x509.Certificate
	// endpoints and kind are the other entries of a Secret for clients.
	endpoints, kind string
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
		state: policy.IssuedCurrent, leaf: leafIn(pairIn(secret)), client: leafIn(clientPairIn(secret)),
		endpoints: string(secret.Data[manifests.KeyEndpoints]), kind: string(secret.Data[manifests.KeyType]),
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
