package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/test/machine"
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

// The loops that follow an etcd end with their context, also while launch reports that etcd runs.
func TestLoopsEndWhileEtcdRuns(t *testing.T) {
	a := complete(t, io.Discard)
	socket := filepath.Join(machine.OpenDir(t), "s")
	a.launch = launch.NewServer(socket, decider{a.bootstrapper, a}, slog.New(slog.DiscardHandler))
	serving, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	go func() { _ = a.launch.Run(serving) }()
	conn := dialed(serving, t, socket)
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SendReport(launch.Report{State: launch.StateRunning, PID: 42}, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.await(serving, launch.Status.Running); !ok {
		t.Fatal("the report did not arrive")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, run := range map[string]func(context.Context) error{
		"prunes":          func(ctx context.Context) error { a.prunes(ctx, 42); return nil },
		"watchOrders":     a.watchOrders,
		"watchDifference": a.watchDifference,
		"resolvePending":  a.resolvePending,
	} {
		done := make(chan error, 1)
		go func() { done <- run(ended) }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", name)
		}
	}
}
