// Command druid-backup lists, checks, verifies, restores, copies and deletes backups where no agent runs; see package
// agent/cli/backup. It also runs on macOS and Windows.
package main

import (
	"context"
	"os"

	"github.com/etcd-druid/druid/agent/cli/backup"
	"github.com/etcd-druid/druid/internal/cli"
)

func main() {
	log, _ := cli.NewLogger(os.Stderr)
	os.Exit(cli.Main(context.Background(), backup.Program(), log))
}
