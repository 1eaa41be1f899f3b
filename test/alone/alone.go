package alone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent"
	agentcli "github.com/etcd-druid/druid/agent/cli"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/crash"
)

// Program is the package of the command that runs an agent. Its one argument is a file with a Certificate.
const Program = "./test/alone/agent"

// Certificate is what an agent is reported.
type Certificate struct {
	Config config.Config
	// Addresses are the addresses of all members by name: on loopback every member has one of its own.
	Addresses map[string]string
	// Server is the URL of Kubernetes, and CA its authority.
	Server string
	CA     []byte
	// User that the agent is, by the right of Cert and Key to be anybody; where it is empty, Server knows who it is.
	User      string
	Cert, Key []byte
	// Profiles is a directory for profiles of the CPU and of the heap, empty for none.
	Profiles string
}

// Write makes the file that the program reads.
func (c Certificate) Write(path string) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

func (c Certificate) kubernetes() *rest.Config {
	r := &rest.Config{Host: c.Server, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA, CertData: c.Cert, KeyData: c.Key}}
	if c.User != "" {
		r.Impersonate = rest.ImpersonationConfig{UserName: c.User, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	return r
}

// Run is the agent's own main, but for where Kubernetes and the other members are.
func Run(path string, log *slog.Logger, level *slog.LevelVar) error {
	debug.SetGCPercent(agentcli.GCPercent)
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c Certificate
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := crash.Arm(crash.Agent); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := agent.New(agent.Options{
		Config: c.Config, Registry: prometheus.NewRegistry(), Log: log, Level: level, Version: cli.Version(),
		Kubernetes: c.kubernetes(), Scratch: filepath.Join(filepath.Dir(path), "scratch"),
		Host:      func(member string) string { return c.Addresses[member] },
		Addresses: func() ([]net.Addr, error) { return []net.Addr{&net.IPNet{IP: net.ParseIP(c.Config.ListenHost)}}, nil },
	})
	if err != nil {
		return err
	}
	if c.Profiles == "" {
		return a.Run(ctx)
	}
	return profiled(filepath.Join(c.Profiles, fmt.Sprintf("idle-%d", os.Getpid())), func() error { return a.Run(ctx) })
}

// profiled writes a profile of CPU and of the heap at its end.
func profiled(name string, run func() error) error {
	cpu, err := os.Create(name + ".cpu")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	failed := run()
	pprof.StopCPUProfile()
	heap, err := os.Create(name + ".heap")
	if err != nil {
		return errors.Join(failed, err, cpu.Close())
	}
	return errors.Join(failed, cpu.Close(), pprof.Lookup("heap").WriteTo(heap, 0), heap.Close())
}
