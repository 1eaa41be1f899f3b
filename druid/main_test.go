package druid

import (
	"os"
	"testing"

	"github.com/etcd-druid/druid/test/env"
)

func TestMain(m *testing.M) {
	env.ManyAtOnce(6)
	code := env.Main(m)
	if code == 0 && env.Complete() {
		code = checkRights()
	}
	os.Exit(code)
}
