package agent

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/bootstrap"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/machine"
)

// A start whose completion waits for Kubernetes is not followed on a volume that may be a successor's by now.
func TestAStartIsFollowedOnlyWhileItsLaunchIsThere(t *testing.T) {
	c := config.Default()
	c.EtcdVersion, c.VolumePath, c.SocketPath = "3.7.3", t.TempDir(), filepath.Join(machine.OpenDir(t), "s")
	if err := datadir.WriteStamp(c.VolumePath, datadir.Stamp{Cluster: "uid", ClusterID: 1, MemberID: 2}); err != nil {
		t.Fatal(err)
	}
	noOne, err := coordinationclient.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b, err := bootstrap.New(bootstrap.Options{
		Config: c, Store: leases.NewStore(noOne.Leases("ns"), "demo"), Log: log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{log: log, bootstrapper: b}
	a.launch = launch.NewServer(c.SocketPath, decider{b, a}, log)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	served, followed := make(chan error, 1), make(chan bool, 1)
	go func() { served <- a.launch.Run(ctx) }()

	conn := dialed(ctx, t, c.SocketPath)
	if err := conn.SendReport(launch.Report{State: launch.StateRunning, PID: 42}, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.await(ctx, launch.Status.Running); !ok {
		t.Fatal("launch's report did not arrive")
	}
	go func() {
		done, err := a.follow(ctx, 42)
		followed <- done || err != nil
	}()
	select {
	case <-followed:
		t.Fatal("the start is not followed, although its etcd runs and nothing is done")
	case <-time.After(300 * time.Millisecond):
	}
	_ = conn.Close()
	select {
	case wrong := <-followed:
		if wrong {
			t.Error("a start that was left is called done")
		}
	case <-ctx.Done():
		t.Error("the start is still followed after its launch went away")
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// dialed is launch's end of the line, once the agent listens.
func dialed(ctx context.Context, t *testing.T, socket string) *launch.Conn {
	t.Helper()
	for ctx.Err() == nil {
		if c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			return launch.NewConn(c.(*net.UnixConn))
		}
		pause(ctx, 10*time.Millisecond)
	}
	t.Fatal("no one listens for launch")
	return nil
}
