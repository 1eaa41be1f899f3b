package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// calledBy adds a client that may use the API of the agents.
func calledBy(name string) harness.Option {
	return func(c *v1alpha1.EtcdCluster) {
		c.Spec.TLS.Client.Clients = append(c.Spec.TLS.Client.Clients, v1alpha1.TLSClient{Name: name, CommonName: name, AgentAPI: true})
	}
}

// caller calls the API of the agents with a token or a certificate, or with neither.
type caller struct {
	cluster     *harness.Cluster
	token       string
	certificate *tls.Certificate
	trusted     *x509.CertPool
}

// post sends an action to the agent of a member.
func (a caller) post(t *testing.T, member, path, body string) (code int, answer string) {
	t.Helper()
	settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.trusted}
	if a.certificate != nil {
		settings.Certificates = []tls.Certificate{*a.certificate}
	}
	over := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: rig.Dial, TLSClientConfig: settings, DisableKeepAlives: true}}
	host := fmt.Sprintf("%s.%s.%s.svc", member, manifests.PeerServiceName(a.cluster.Name), a.cluster.Namespace)
	harness.Eventually(t, time.Minute, "an answer of "+member, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+net.JoinHostPort(host, strconv.Itoa(config.APIPort))+path,
			bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		if a.token != "" {
			request.Header.Set("Authorization", "Bearer "+a.token)
		}
		response, err := over.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }() // it was read
		raw, err := io.ReadAll(response.Body)
		if code, answer = response.StatusCode, string(raw); code == http.StatusTooManyRequests {
			err = fmt.Errorf("too many requests: %s", answer)
		}
		return err
	})
	t.Logf("POST %s to %s: %d %s", path, member, code, strings.TrimSpace(answer))
	return code, answer
}

// tokenOf makes a ServiceAccount, and returns a token of it.
func tokenOf(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := rig.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	token, err := rig.Lab.Kubectl(t.Context(), "create", "token", name, "--namespace", namespace, "--duration=10m")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(token)
}

// agentsServeCallers acts on port 8443 as callers do who may, and who may not. backup is the answer to a request for a backup.
func agentsServeCallers(t *testing.T, c *harness.Cluster, view harness.View, backup int) {
	t.Helper()
	certificate, trusted, err := c.Connection(t.Context(), manifests.ClientServiceName(c.Name)+"-caller")
	application, _, err2 := c.Connection(t.Context(), manifests.ConnectionName(c.Name))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	may, mayNot := tokenOf(t, c.Namespace, "may"), tokenOf(t, c.Namespace, "may-not")
	grant(t, c.Namespace, "may", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: c.Namespace, Name: "may"},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"patch"}})
	const stepDown, snapshots, full = "/v1/step-down", "/v1/snapshots", `{"type":"Full"}`
	for name, refused := range map[string]struct {
		who  caller
		code int
	}{
		"neither token nor certificate":        {caller{}, http.StatusUnauthorized},
		"a token that Kubernetes did not sign": {caller{token: "planted"}, http.StatusUnauthorized},
		"a token without rights":               {caller{token: mayNot}, http.StatusForbidden},
		"a certificate of an application":      {caller{certificate: application}, http.StatusForbidden},
	} {
		refused.who.cluster, refused.who.trusted = c, trusted
		if code, answer := refused.who.post(t, view.Leader(), stepDown, ""); code != refused.code {
			t.Errorf("%s: %d %s, want %d", name, code, answer, refused.code)
		}
	}
	if now := c.AwaitMembers(t, 3, scaleWithin); now.Leader() != view.Leader() {
		t.Errorf("the leader changed from %s to %s", view.Leader(), now.Leader())
	}
	byCertificate := caller{cluster: c, trusted: trusted, certificate: certificate}
	if code, answer := byCertificate.post(t, view.Follower(), snapshots, full); code != backup {
		t.Errorf("a backup by a certificate through a follower: %d %s, want %d", code, answer, backup)
	}
	byToken := caller{cluster: c, trusted: trusted, token: may}
	if code, answer := byToken.post(t, view.Leader(), snapshots, full); code != http.StatusForbidden {
		t.Errorf("a backup by a token that may only move the leadership: %d %s", code, answer)
	}
	if code, answer := byToken.post(t, view.Follower(), stepDown, ""); code != http.StatusOK {
		t.Errorf("a step-down by a token through a follower: %d %s", code, answer)
	}
	harness.Eventually(t, scaleWithin, "another member leads", func(ctx context.Context) error {
		if now := c.AwaitMembers(t, 3, scaleWithin); now.Leader() == view.Leader() {
			return fmt.Errorf("%s leads", now.Leader())
		}
		return ctx.Err()
	})
}
