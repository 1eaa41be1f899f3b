package agent

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Each request of the agent to Kubernetes reads the clock of the API server, by which quarantined data expires.
func TestExpiryKnowsTheAPIServersClock(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	a := complete(t, io.Discard)
	if c := a.bootstrapper.Clocks(); !c.Server.IsZero() || c.Node.IsZero() {
		t.Errorf("before the first response, the clocks are %+v", c)
	}
	a.options.Kubernetes = &rest.Config{Host: server.URL}
	client, err := a.kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), "demo", metav1.GetOptions{}); err == nil {
		t.Fatal("a Lease was read")
	}
	if c := a.bootstrapper.Clocks(); c.Server.IsZero() || c.Node.Sub(c.Server).Abs() > time.Minute {
		t.Errorf("the clocks are %+v", c)
	}
}
