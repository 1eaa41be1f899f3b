// Command kubectl-druid is the plugin of kubectl for EtcdClusters.
package main

import (
	"context"
	"os"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/plugin"
)

func main() {
	log, _ := cli.NewLogger(os.Stderr)
	os.Exit(cli.Main(context.Background(), plugin.NewCommand(), log))
}
