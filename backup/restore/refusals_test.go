package restore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/test/member"
)

func TestARestoreThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 8)
	s.traffic(60)
	full := s.full()
	s.traffic(60)
	last := s.revision()
	s.delta(full.Revision+1, last)
	p := s.plan(catalog.Target{})
	for _, phase := range []Phase{Fetching, Applying, Finishing} {
		ctx, cancel := context.WithCancel(t.Context())
		g := newTarget(t)
		cfg := g.config(s, p, newest)
		seen := map[Phase]bool{}
		cfg.Progress = func(p Progress) {
			seen[p.Phase] = true
			if p.Phase == phase {
				cancel()
			}
		}
		_, err := Run(ctx, cfg)
		if !seen[phase] {
			t.Errorf("no progress was reported while %s, only %v", phase, seen)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up while %s: %v", phase, err)
		}
		untouched(t, g)
	}
}

// TestExistingDataDirUntouched: a data directory that is there is not touched.
func TestExistingDataDirUntouched(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 9)
	s.put("key", "value")
	full := s.full()
	p := catalog.Plan{Full: s.named(full.Key)}
	t.Run("not empty", func(t *testing.T) {
		g := newTarget(t)
		write(t, filepath.Join(g.dir, "member", "x"), "precious")
		if _, err := Run(t.Context(), g.config(s, p, newest)); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("err %v", err)
		}
		if content, err := os.ReadFile(filepath.Join(g.dir, "member", "x")); err != nil || string(content) != "precious" {
			t.Errorf("it holds %q, %v", content, err)
		}
	})
	t.Run("empty", func(t *testing.T) {
		g := newTarget(t)
		if err := os.MkdirAll(g.dir, dirMode); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), g.config(s, p, newest)); err != nil {
			t.Error(err)
		}
		// A second one finds what the first one made.
		if _, err := Run(t.Context(), g.config(s, p, newest)); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("a second restore: %v", err)
		}
	})
	t.Run("someone else's workspace", func(t *testing.T) {
		g := newTarget(t)
		write(t, filepath.Join(g.dir+suffix, "data", "x"), "precious")
		if _, err := Run(t.Context(), g.config(s, p, newest)); !errors.Is(err, ErrForeign) {
			t.Errorf("err %v", err)
		}
		if err := Discard(g.dir); !errors.Is(err, ErrForeign) {
			t.Errorf("discard: %v", err)
		}
		if content, err := os.ReadFile(filepath.Join(g.dir+suffix, "data", "x")); err != nil || string(content) != "precious" {
			t.Errorf("it holds %q, %v", content, err)
		}
	})
	t.Run("a workspace in use", func(t *testing.T) {
		g := newTarget(t)
		cfg := g.config(s, p, newest)
		w, err := enter(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), cfg); !errors.Is(err, ErrBusy) {
			t.Errorf("err %v", err)
		}
		if err := Discard(g.dir); !errors.Is(err, ErrBusy) {
			t.Errorf("discard: %v", err)
		}
		if err := w.leave(); err != nil {
			t.Fatal(err)
		}
		untouched(t, g)
	})
	// These are the remains of a process that dies at different points.
	for name, left := range map[string][]string{
		"before the mark":       {},
		"while it marks":        {markerFile + ".tmp"},
		"while it fetches":      {markerFile, "data/member/snap/db"},
		"with a log":            {markerFile, "data/member/snap/db", "data/member/wal/0.wal"},
		"after it had finished": {markerFile},
	} {
		t.Run("one that died "+name, func(t *testing.T) {
			g := newTarget(t)
			cfg := g.config(s, p, newest)
			leave := func() {
				w, err := enter(&cfg)
				if err != nil {
					t.Fatal(err)
				}
				mark, err := os.ReadFile(filepath.Join(w.path, markerFile))
				if err := errors.Join(err, os.Remove(filepath.Join(w.path, markerFile)), w.lock.Close()); err != nil {
					t.Fatal(err)
				}
				for _, file := range left {
					content := "half"
					if file == markerFile {
						content = string(mark)
					}
					write(t, filepath.Join(w.path, file), content)
				}
			}
			leave()
			if err := Discard(g.dir); err != nil {
				t.Errorf("discard: %v", err)
			}
			untouched(t, g)
			leave()
			if _, err := Run(t.Context(), cfg); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(g.dir + suffix); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the workspace is still there: %v", err)
			}
			m := g.start(newest, member.Options{})
			same(t, s, m, full.Revision)
		})
	}
}

func TestADiskThatIsTooSmallIsReported(t *testing.T) {
	c := &Config{Plan: catalog.Plan{Deltas: []catalog.Delta{{Size: 1 << 40}}}}
	err := checkSpace(t.TempDir(), c, 1<<50, logSpace)
	if !errors.Is(err, ErrSpace) || !strings.Contains(err.Error(), "database 1073741824 MiB, delta backups 1048576 MiB, log 128 MiB") {
		t.Errorf("err %v", err)
	}
	if err := checkSpace(t.TempDir(), &Config{}, 1<<10, logSpace); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeRestoredIsRefusedFirst(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a relative data directory":     func(c *Config) { c.DataDir = "data" },
		"no token":                      func(c *Config) { c.Token = "" },
		"no name":                       func(c *Config) { c.Name = "" },
		"a name that is not listed":     func(c *Config) { c.Name = "other" },
		"other peer URLs":               func(c *Config) { c.PeerURLs = []string{"http://127.0.0.1:1"} },
		"a cluster that is none":        func(c *Config) { c.InitialCluster = "m" },
		"a negative bump":               func(c *Config) { c.Bump = -1 },
		"no plan":                       func(c *Config) { c.Plan = catalog.Plan{} },
		"no store":                      func(c *Config) { c.Store = nil },
		"a peer URL that is none":       func(c *Config) { c.PeerURLs = []string{"m"} },
		"a time to restore to, at last": func(c *Config) { c.Plan.Until = time.Unix(1, 0); c.Plan.Full.Key = "absent" },
	} {
		g := newTarget(t)
		s := &source{tb: t, store: directory(t)}
		cfg := g.config(s, catalog.Plan{Full: catalog.Full{Key: "absent", Size: 1}}, newest)
		change(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
		untouched(t, g)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), dirMode), os.WriteFile(path, []byte(content), fileMode)); err != nil {
		t.Fatal(err)
	}
}
