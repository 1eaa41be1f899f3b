// Command agent runs next to one etcd member; see package agent.
package main

import (
	"context"
	"os"

	agentcli "github.com/etcd-druid/druid/agent/cli"
	"github.com/etcd-druid/druid/internal/cli"
)

func main() {
	log, level := cli.NewLogger(os.Stderr)
	os.Exit(cli.Main(context.Background(), agentcli.Root(log, level), log))
}
