package sources_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/sources"
)

const repo = "../.."

// TestTestCacheSeesProgramSources: what a program is built of is seen by the test cache.
// Go's test cache reads what a test opened from the file that -test.testlogfile names; here a test is run for that file alone.
func TestTestCacheSeesProgramSources(t *testing.T) {
	if os.Getenv("DRUID_TEST_READS") != "" {
		if err := sources.Reads(t.Context(), repo, "./cmd/launch"); err != nil {
			t.Fatal(err)
		}
		return
	}
	log := filepath.Join(t.TempDir(), "log")
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.testlogfile", log)
	again.Env = append(os.Environ(), "DRUID_TEST_READS=yes")
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"stat " + root + "/agent/launch/supervise", "stat " + root + "/cmd/launch/main.go", "stat " + root + "/go.sum"} {
		if !strings.Contains(string(raw), line+"\n") {
			t.Errorf("%q is not in what the test cache sees:\n%s", line, raw)
		}
	}
}

// TestPathOfUsersAndOfCIIsTheSame: the shells of a user and of CI differ, and tests see one PATH.
func TestPathOfUsersAndOfCIIsTheSame(t *testing.T) {
	const want = "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin"
	for _, path := range []string{
		want,
		"/usr/local/bin:/usr/bin:/bin",
		"/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin",
		"/usr/local/go/bin:/home/user/go/bin:/home/user:/usr/local/bin:/usr/bin:/usr/local/bin:/bin",
		"bin::/usr/local/bin:/usr/bin:/bin:/usr/bin",
	} {
		if got := sources.Path(path, "/usr/local/go/bin", "/home/user"); got != want {
			t.Errorf("of %s it makes %s, want %s", path, got, want)
		}
	}
	if got := sources.Path("/rooted/bin", "/usr/local/go/bin", "/home/user"); got != "/usr/local/go/bin:/rooted/bin" {
		t.Errorf("a folder beside the home directory: %s", got)
	}
}

func TestAPackageThatIsNotThereIsAnError(t *testing.T) {
	for _, pkg := range []string{"./cmd/nothing", "fmt"} {
		if err := sources.Reads(t.Context(), repo, pkg); err == nil || !strings.Contains(err.Error(), pkg) {
			t.Errorf("%s: got %v, want an error that names it", pkg, err)
		}
	}
}

// TestEqualCopiesHaveEqualTimes: copies of the same content have the same times.
func TestEqualCopiesHaveEqualTimes(t *testing.T) {
	write := func(dir, file, content string) {
		t.Helper()
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clone := func() string {
		t.Helper()
		dir := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		write(dir, "a/one.go", "package a")
		write(dir, "a/b/two.go", "package b")
		write(dir, "c/three.go", "package c")
		write(dir, ".gitignore", "ignored")
		write(dir, "ignored", "by git")
		if err := os.Symlink("a/one.go", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	times := func(dir string) map[string]time.Time {
		t.Helper()
		to := t.TempDir()
		if err := sources.Copy(t.Context(), dir, to); err != nil {
			t.Fatal(err)
		}
		found := map[string]time.Time{}
		for _, path := range []string{"", "a", "a/one.go", "a/b", "a/b/two.go", "c", "c/three.go", "link"} {
			info, err := os.Lstat(filepath.Join(to, path))
			if err != nil {
				t.Fatal(err)
			}
			if info.ModTime().Year() > 2017 {
				t.Errorf("%s has the time %s", path, info.ModTime())
			}
			found[path] = info.ModTime()
		}
		if _, err := os.Lstat(filepath.Join(to, "ignored")); !os.IsNotExist(err) {
			t.Errorf("a file that git ignores was copied: %v", err)
		}
		return found
	}
	one, two := clone(), clone()
	first := times(one)
	if diff := cmp.Diff(first, times(two)); diff != "" {
		t.Errorf("two copies of the same content (-one +two):\n%s", diff)
	}
	write(two, "a/b/two.go", "package B")
	changed := times(two)
	for path, differs := range map[string]bool{"": false, "a": false, "a/one.go": false, "a/b": false, "a/b/two.go": true, "c": false} {
		if first[path].Equal(changed[path]) == differs {
			t.Errorf("%q: the times are %s and %s, want another one: %t", path, first[path], changed[path], differs)
		}
	}
	write(two, "a/b/two.go", "package b")
	write(two, "a/four_test.go", "package a")
	if added := times(two); !added["a"].Equal(first["a"]) {
		t.Errorf("a new test in a: the times were %v and are %v", first, added)
	}
	write(two, "a/four.go", "package a")
	if added := times(two); added["a"].Equal(first["a"]) || !added["a/b"].Equal(first["a/b"]) {
		t.Errorf("a new file in a: the times were %v and are %v", first, added)
	}
}

func TestTemporaryFilesOfEndedAreRemoved(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	ended := filepath.Join(base, "ended")
	if err := os.MkdirAll(ended, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ended, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running, err := sources.TemporaryDir(base)
	if err != nil {
		t.Fatal(err)
	}
	own, err := sources.TemporaryDir(base)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob(filepath.Join(base, "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{running, own}
	slices.Sort(want)
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}
