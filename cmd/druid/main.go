// Command druid is the controller that runs etcd clusters on Kubernetes.
package main

import (
	"context"
	"os"

	"github.com/etcd-druid/druid/druid"
	"github.com/etcd-druid/druid/internal/cli"
)

func main() {
	log, level := cli.NewLogger(os.Stderr)
	os.Exit(cli.Main(context.Background(), cli.Service(druid.NewCommand(log, level)), log))
}
