// Command agent is cmd/agent for a measurement without a kubelet: it is told where Kubernetes is, and its one member is at
// the address that it listens on. It links what cmd/agent links, so that its memory is that of the real one.
//
//	agent CONFIG.json KUBERNETES-URL CA.pem [DIRECTORY-FOR-PROFILES]
package main

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
)

func main() {
	log, level := cli.NewLogger(os.Stderr)
	if err := run(os.Args[1:], log, level); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(args []string, log *slog.Logger, level *slog.LevelVar) error {
	debug.SetGCPercent(agentcli.GCPercent)
	if len(args) < 3 {
		return fmt.Errorf("the arguments are %q, want a configuration, the URL of Kubernetes and its CA", args)
	}
	raw, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var c config.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := agent.New(agent.Options{
		Config: c, Registry: prometheus.NewRegistry(), Log: log, Level: level, Version: cli.Version(),
		Kubernetes: &rest.Config{Host: args[1], TLSClientConfig: rest.TLSClientConfig{CAFile: args[2]}},
		Scratch:    filepath.Join(filepath.Dir(args[0]), "scratch"),
		Host:       func(string) string { return c.ListenHost },
		Addresses:  func() ([]net.Addr, error) { return []net.Addr{&net.IPNet{IP: net.ParseIP(c.ListenHost)}}, nil },
	})
	if err != nil {
		return err
	}
	if len(args) == 3 {
		return a.Run(ctx)
	}
	return profiled(filepath.Join(args[3], fmt.Sprintf("idle-%d", os.Getpid())), func() error { return a.Run(ctx) })
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
