package druid

import (
	"os"
	"testing"

	"github.com/etcd-druid/druid/test/env"
)

func TestMain(m *testing.M) {
	env.ManyAtOnce(6)
	os.Exit(env.Main(m))
}
