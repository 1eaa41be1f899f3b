package crash_test

import (
	"os"
	"testing"

	"github.com/etcd-druid/druid/test/env"
)

func TestMain(m *testing.M) {
	env.ManyAtOnce(6)
	code := env.Main(m)
	if template.path != "" {
		_ = os.RemoveAll(template.path)
	}
	os.Exit(code)
}
