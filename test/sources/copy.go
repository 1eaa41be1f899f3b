package sources

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Copy copies all files of a git repository that are not ignored, as they are in its working tree, into the folder to. The modification
// time of each is made of its content and mode, and that of a folder of the names in it but those of tests: two copies with the same content
// are the same for Go's test cache, whenever and from where they were made. The times lie between 2001 and 2017, for the cache takes no
// result that rests on files of the last seconds.
func Copy(ctx context.Context, repo, to string) error {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	cmd.Dir = repo
	listed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the files of %s: %w", repo, err)
	}
	for file := range strings.SplitSeq(strings.Trim(string(listed), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(repo, file), filepath.Join(to, file)); os.IsNotExist(err) {
			continue // deleted, and not yet so in git's index
		} else if err != nil {
			return fmt.Errorf("copy %s: %w", file, err)
		}
	}
	return setTimes(to)
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is neither a file nor a symbolic link, but %s", info.Mode())
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := os.WriteFile(to, content, mode); err != nil {
		return err
	}
	return os.Chmod(to, mode) // whatever the umask is
}

// setTimes sets the times of all below dir.
func setTimes(dir string) error {
	var paths []string
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	}); err != nil {
		return err
	}
	for _, path := range paths {
		at, err := timeOf(path)
		if err != nil {
			return err
		}
		spec := unix.NsecToTimespec(at.UnixNano())
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{spec, spec}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set the time of %s: %w", path, err)
		}
	}
	// The root changes with each commit, and a program that is started there makes the test look at it.
	constant := time.Unix(earliest, 0)
	return os.Chtimes(dir, constant, constant)
}

const (
	earliest = 1_000_000_000 // September 2001
	span     = 500_000_000   // seconds: nearly 16 years
)

// timeOf is a time that is made of what path holds.
func timeOf(path string) (time.Time, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return time.Time{}, err
	}
	hash := sha256.New()
	_, _ = fmt.Fprintln(hash, info.Mode())
	switch {
	case info.IsDir():
		entries, err := os.ReadDir(path)
		if err != nil {
			return time.Time{}, err
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), "_test.go") {
				_, _ = fmt.Fprintln(hash, e.Name(), e.Type())
			}
		}
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return time.Time{}, err
		}
		_, _ = io.WriteString(hash, target)
	default:
		content, err := os.ReadFile(path)
		if err != nil {
			return time.Time{}, err
		}
		_, _ = hash.Write(content)
	}
	n := binary.BigEndian.Uint64(hash.Sum(nil))
	return time.Unix(earliest+int64(n>>30%span), int64(n&(1<<30-1)%1_000_000_000)), nil
}
