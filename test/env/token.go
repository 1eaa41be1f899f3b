package env

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// Token makes a ServiceAccount with the rules in its namespace, where it does not exist yet, and returns a token of it.
func Token(tb testing.TB, config *rest.Config, namespace, name string, rules ...rbacv1.PolicyRule) string {
	tb.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	created := func(_ any, err error) {
		tb.Helper()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			tb.Fatal(err)
		}
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	created(client.CoreV1().ServiceAccounts(namespace).Create(tb.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}))
	created(client.RbacV1().Roles(namespace).Create(tb.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}))
	created(client.RbacV1().RoleBindings(namespace).Create(tb.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{}))
	request, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(tb.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return request.Status.Token
}

// Ending returns the token with another end: the other claims are the same, and it is signed with the key of the API server. Only a
// server that is shared by a package can be asked.
func Ending(tb testing.TB, token string, end time.Time) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	path := filepath.Join(shared.server.ControlPlane.GetAPIServer().CertDir, "sa-signer.key")
	raw, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(raw)
	if err != nil {
		tb.Fatal(err)
	}
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		tb.Fatal(err)
	}
	claims := map[string]any{}
	if err := json.Unmarshal(payload, &claims); err != nil {
		tb.Fatal(err)
	}
	begin := end.Add(-2 * time.Hour).Unix()
	claims["exp"], claims["nbf"], claims["iat"] = end.Unix(), begin, begin
	if payload, err = json.Marshal(claims); err != nil {
		tb.Fatal(err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key.(*ecdsa.PrivateKey), sum[:])
	if err != nil {
		tb.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...) // ES256 (RFC 7518, 3.4)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
