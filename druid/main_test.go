package druid

import (
	"context"
	"os"
	"testing"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/test/env"
)

// A process with this variable is druid, with druid's own command line: only a process of its own can be ended without
// cleanup.
const druidVariable = "DRUID_TEST_DRUID"

func TestMain(m *testing.M) {
	if os.Getenv(druidVariable) != "" {
		log, level := cli.NewLogger(os.Stderr)
		os.Exit(cli.Main(context.Background(), NewCommand(log, level), log))
	}
	env.ManyAtOnce()
	os.Exit(env.Main(m))
}
