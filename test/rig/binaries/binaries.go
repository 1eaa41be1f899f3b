// Package binaries builds the programs that a rig runs from the pinned Go
// modules below tools/, once, into a cache outside the repository. A binary's
// key is the hash of all that decides its content, so that an entry is never
// wrong and never has to be invalidated. Runs at once share the cache: builds
// take a lock, and entries appear by an atomic rename.
package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Set maps the names of binaries to their files.
type Set map[string]string

// CacheDir is the rig's cache: binaries, images and the state of runs.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w; set XDG_CACHE_HOME or HOME", err)
	}
	return filepath.Join(base, "druid-rig"), nil
}

// RepoDir finds the repository that holds the rig's sources, from the working
// directory upwards.
func RepoDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "tools", "kubernetes", "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside the druid repository; run the rig from there", dir)
		}
	}
}

// Builder builds what the cache lacks and reports Progress about it.
type Builder struct {
	Repo, Cache string
	Progress    func(format string, args ...any)
}

// Programs is Build for this repository and the cache of this machine.
func Programs(ctx context.Context, progress func(format string, args ...any), names ...string) (Set, error) {
	repo, err := RepoDir()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return Builder{Repo: repo, Cache: cache, Progress: progress}.Build(ctx, names...)
}

// Build returns the named binaries, or all that a rig runs, after building
// those that are missing.
func (b Builder) Build(ctx context.Context, names ...string) (Set, error) {
	set, missing, err := b.missing(names)
	if err != nil || len(missing) == 0 {
		return set, err
	}
	unlock, err := lock(ctx, filepath.Join(b.Cache, "build.lock"), b.Progress)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another run may have built them while this one waited.
	if set, missing, err = b.missing(names); err != nil {
		return nil, err
	}
	return set, b.buildAll(ctx, set, missing)
}

func (b Builder) buildAll(ctx context.Context, set Set, missing []tool) error {
	var left time.Duration
	for _, t := range missing {
		left += t.cold
	}
	begun := time.Now()
	for i, t := range missing {
		b.Progress("building %s (%d of %d), %s elapsed, about %s left on two idle cores, less with a warm Go build cache",
			t.name, i+1, len(missing), time.Since(begun).Round(time.Second), left)
		if err := b.build(ctx, t, set[t.name]); err != nil {
			return err
		}
		left -= t.cold
	}
	b.Progress("built %d binaries in %s", len(missing), time.Since(begun).Round(time.Second))
	return nil
}

// missing returns where the binaries belong, and those that are not there.
func (b Builder) missing(names []string) (Set, []tool, error) {
	set, missing := Set{}, []tool(nil)
	keys := map[string]string{}
	candidates := tools
	if len(names) > 0 {
		candidates = slices.Concat(tools, onRequest)
	}
	for _, t := range candidates {
		if len(names) > 0 && !slices.Contains(names, t.name) {
			continue
		}
		key, ok := keys[t.module]
		if !ok {
			var err error
			if key, err = b.key(t); err != nil {
				return nil, nil, err
			}
			keys[t.module] = key
		}
		file := filepath.Join(b.Cache, "bin", t.module+"-"+key, t.name)
		set[t.name] = file
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, t)
		}
	}
	for _, name := range names {
		if _, known := set[name]; !known {
			return nil, nil, fmt.Errorf("build %s: no module in tools/ has this program", name)
		}
	}
	return set, missing, nil
}

// key hashes what decides a module's binaries: its files, the compiler and the
// flags.
func (b Builder) key(t tool) (string, error) {
	dir := b.dir(t)
	flags, err := t.ldflags(dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOARCH, flags)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", err
	}
	sort.Strings(files)
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("hash tool module %s: %w", t.module, err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(content), content)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func (b Builder) dir(t tool) string { return filepath.Join(b.Repo, "tools", t.module) }

func (b Builder) build(ctx context.Context, t tool, file string) error {
	flags, err := t.ldflags(b.dir(t))
	if err != nil {
		return err
	}
	return GoBuild(ctx, b.dir(t), t.pkg, flags, file)
}

// GoBuild builds one static binary. All builds share one setting of cgo and
// -trimpath: mixing them would double the Go build cache, which is gigabytes.
func GoBuild(ctx context.Context, dir, pkg, ldflags, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	tmp := fmt.Sprintf("%s.%d.tmp", file, os.Getpid())
	defer os.Remove(tmp)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", tmp, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "PWD="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, dir, err, strings.TrimSpace(string(out)))
	}
	return os.Rename(tmp, file)
}

// lock takes an advisory lock that ends with this process.
func lock(ctx context.Context, file string, progress func(string, ...any)) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for said := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !said {
			progress("waiting for another run that builds (lock %s)", file)
			said = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
