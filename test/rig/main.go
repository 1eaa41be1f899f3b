//go:build linux

// Command rig runs a Kubernetes cluster of real nodes on one Linux machine, for
// druid's tests; see the README next to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/etcd-druid/druid/test/rig/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := cli.New().ExecuteContext(ctx)
	var exit cli.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(int(exit))
	case err != nil:
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
}
