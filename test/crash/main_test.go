package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/test/env"
)

// A process with this variable is an agent: the test binary runs itself, because only a process of its own can be ended
// without cleanup. The value is a file with its birth certificate.
const agentVariable = "DRUID_TEST_AGENT"

func TestMain(m *testing.M) {
	if path := os.Getenv(agentVariable); path != "" {
		if err := runAgent(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	env.ManyAtOnce()
	code := env.Main(m)
	if launchDir != "" {
		_ = os.RemoveAll(launchDir)
	}
	os.Exit(code)
}

// certificate is what an agent's process is told.
type certificate struct {
	Config config.Config
	// Hosts are the addresses of all members by name; on loopback every member has one of its own.
	Hosts map[string]string
	// Kubernetes: where the API server is, and as whom the agent speaks to it.
	Server string
	User   string
	CA     []byte
	Cert   []byte
	Key    []byte
}

func (c certificate) kubernetes() *rest.Config {
	return &rest.Config{
		Host:            c.Server,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA, CertData: c.Cert, KeyData: c.Key},
		Impersonate: rest.ImpersonationConfig{
			UserName: c.User, Groups: []string{"system:serviceaccounts", "system:authenticated"},
		},
	}
}

// runAgent is the agent's own main, but for where Kubernetes and the other members are.
func runAgent(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c certificate
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	if err := crash.Arm(crash.Agent); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := agent.New(agent.Options{
		Config: c.Config, Kubernetes: c.kubernetes(), Registry: prometheus.NewRegistry(), Version: "test",
		Log:  slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		Host: func(member string) string { return c.Hosts[member] },
		Addresses: func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.ParseIP(c.Config.ListenHost)}}, nil
		},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
