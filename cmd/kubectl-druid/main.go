// Command kubectl-druid is the plugin of kubectl for EtcdClusters.
package main

import (
	"context"
	"io"
	"os"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/plugin"
)

func main() {
	// client-go logs what its functions return too, and a terminal is no place for JSON.
	log, _ := cli.NewLogger(io.Discard)
	os.Exit(cli.Main(context.Background(), plugin.NewCommand(), log))
}
