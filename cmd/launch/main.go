// Command launch is process 1 of the etcd container. `agent launch` replaces itself with it; see package supervise for why
// it is a binary of its own.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/etcd-druid/druid/agent/launch/supervise"
)

func main() {
	// Little is allocated, and all of it early: a collection at each half more keeps the heap at about 1 MiB.
	debug.SetGCPercent(50)
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(os.Args[1:], log); err != nil {
		log.Error("launch ended", "err", err)
		os.Exit(1)
	}
}

func run(args []string, log *slog.Logger) error {
	o := supervise.Options{Log: log}
	flags := flag.NewFlagSet("launch", flag.ContinueOnError)
	flags.StringVar(&o.Socket, "socket", "/druid/s", "unix socket of the agent")
	flags.StringVar(&o.Volume, "volume", "/var/lib/etcd", "root of the member's volume")
	flags.StringVar(&o.Probe, "probe", ":2381", "address that is answered while no etcd runs; empty for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	forward := make(chan os.Signal, 8)
	signal.Notify(forward, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	o.Forward = forward
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return supervise.Run(ctx, o)
}
