package supervisor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/etcd-druid/druid/test/rig/plan"
)

// kubeClient asks the apiserver for the little that the supervisor needs. It
// is not client-go, so that building the rig takes a second and not a minute.
type kubeClient struct {
	server string
	http   *http.Client
}

func newKubeClient(p *plan.Plan) (*kubeClient, error) {
	ca, err := os.ReadFile(p.PKI("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the rig's PKI: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(p.PKI("rig.crt"), p.PKI("rig.key"))
	if err != nil {
		return nil, fmt.Errorf("read the rig's PKI: %w", err)
	}
	return &kubeClient{p.Network().APIServer(), &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{pair},
		}},
	}}, nil
}

// get reads an object into out, unless out is nil.
func (k *kubeClient) get(ctx context.Context, path string, out any) error {
	return k.do(ctx, http.MethodGet, path, "", nil, out)
}

// apply makes or changes an object by server-side apply.
func (k *kubeClient) apply(ctx context.Context, path string, object []byte) error {
	return k.do(ctx, http.MethodPatch, path+"?fieldManager=rig&force=true", "application/apply-patch+yaml", object, nil)
}

func (k *kubeClient) do(ctx context.Context, method, path, kind string, body []byte, out any) error {
	url := k.server + path
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		var status struct{ Message string }
		_ = json.Unmarshal(answer, &status)
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, status.Message)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}
