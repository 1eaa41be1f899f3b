package env

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/sources"
)

// programs of this repository that were built, by package, and the directory that they are in.
var programs struct {
	sync.Mutex
	dir   string
	built map[string]string
}

// Program builds a command of this repository, as "./cmd/druid", and returns its path. It is built as it is shipped,
// without the race detector even where the tests have it: that makes each start of a process expensive, and what races
// it has, it has in the tests that run its packages themselves. For packages whose TestMain is Main, which removes it.
func Program(tb testing.TB, pkg string) string {
	tb.Helper()
	programs.Lock()
	defer programs.Unlock()
	if path, ok := programs.built[pkg]; ok {
		return path
	}
	repo, err := binaries.RepoDir()
	if err != nil {
		tb.Fatal(err)
	}
	if programs.dir == "" {
		if programs.dir, err = os.MkdirTemp("", "druid-programs-"); err != nil {
			tb.Fatal(err)
		}
		programs.built = map[string]string{}
	}
	if err := sources.Reads(tb.Context(), repo, pkg); err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(programs.dir, filepath.Base(pkg))
	if err := binaries.GoBuild(tb.Context(), repo, pkg, "", path); err != nil {
		tb.Fatal(err)
	}
	programs.built[pkg] = path
	return path
}
