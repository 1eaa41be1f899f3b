package runs

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/rig/plan"
)

func TestReapTakesTheDeadAndLeavesTheLiving(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	for _, name := range []string{"dead", "alive"} {
		lock, err := Claim(t.Context(), cache, name)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		p := &plan.Plan{Name: name, Dir: Dir(cache, name)}
		if err := os.MkdirAll(p.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := p.Save(); err != nil {
			t.Fatal(err)
		}
		if name == "dead" {
			lock.Close() // as the kernel does when the supervisor ends
		}
	}
	reaped, err := Reap(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(reaped, []string{"dead"}); d != "" {
		t.Error(d)
	}
	if _, err := os.Stat(Dir(cache, "dead")); !os.IsNotExist(err) {
		t.Errorf("the dead run's directory is still there: %v", err)
	}
	if _, err := Find(cache, "alive"); err != nil {
		t.Errorf("the living run is not found: %v", err)
	}
	if _, err := Find(cache, "dead"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v for the dead run, want %v", err, ErrNotRunning)
	}
	if _, err := Claim(t.Context(), cache, "alive"); !errors.Is(err, ErrRunning) {
		t.Errorf("got %v claiming the living run, want %v", err, ErrRunning)
	}
}
