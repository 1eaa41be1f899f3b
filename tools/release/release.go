package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"aead.dev/minisign"
)

// release is what is built from a commit of the repository.
type release struct {
	repo, out string
	version   version
	// commit and at are the commit and its time, which all files that need a time have.
	commit string
	at     time.Time
	// key signs the checksums and the image. If it is nil, nothing is signed.
	key            *minisign.PrivateKey
	imagePlatforms []platform
	tools          []tool
	progress       io.Writer
}

// choose sets what is built: all platforms, or those of a list.
func (r *release) choose(list string) (err error) {
	if r.imagePlatforms, err = only(imagePlatforms, list); err != nil {
		return err
	}
	if len(r.imagePlatforms) == 0 {
		return fmt.Errorf("the platforms %s have none of the image: add one of %v", list, imagePlatforms)
	}
	for _, t := range tools {
		if t.platforms, err = only(t.platforms, list); err != nil {
			return err
		}
		r.tools = append(r.tools, t)
	}
	return nil
}

// readCommit reads the commit and its time from git. It fails if the files are not those of the commit.
func (r *release) readCommit(ctx context.Context) error {
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("these files are not as in the last commit, and a release is built from a commit: commit or remove them first\n%s", changed)
	}
	ignored, err := r.git(ctx, append([]string{"status", "--porcelain", "--ignored", "--"}, chartFolders...)...)
	if err != nil {
		return err
	}
	if ignored != "" {
		return fmt.Errorf("git ignores these files, and they would be in the package of a chart: remove them first\n%s", ignored)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := r.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time of the commit: %w", err)
	}
	r.at = time.Unix(unix, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.repo
	out, err := cmd.Output()
	if err != nil {
		var said []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			said = exit.Stderr
		}
		return "", fmt.Errorf("git %s in %s: %w; a release is built from a clone of the repository\n%s", strings.Join(args, " "), r.repo, err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// make writes all files of the release to a directory that it empties first. What can fail because of the repository fails before
// the programs are built, which takes minutes.
func (r *release) make(ctx context.Context) error {
	notes, err := r.changes()
	if err != nil {
		return err
	}
	if err := r.empty(); err != nil {
		return err
	}
	if err := r.writeInstall(); err != nil {
		return err
	}
	if err := r.writeBundle(); err != nil {
		return err
	}
	for _, folder := range chartFolders {
		if err := r.writeChart(folder); err != nil {
			return err
		}
	}
	scratch, err := os.MkdirTemp("", "druid-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	b := &builder{repo: r.repo, dir: scratch, version: r.version}
	r.say("building the image for %d platforms", len(r.imagePlatforms))
	digest, err := r.writeImages(ctx, b)
	if err != nil {
		return err
	}
	if err := r.writePayload(digest); err != nil {
		return err
	}
	if err := r.writeTools(ctx, b); err != nil {
		return err
	}
	if err := r.writeKrew(); err != nil {
		return err
	}
	if err := r.writeSBOM(b.done, digest); err != nil {
		return err
	}
	if err := r.writeNotes(notes, digest); err != nil {
		return err
	}
	if err := r.writeSums(); err != nil {
		return err
	}
	r.say("%s is in %s", r.version, r.out)
	return nil
}

func (r *release) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, format+"\n", args...)
}

// ourFiles are what the names of the files of a release begin with.
var ourFiles = []string{installFile, admissionFile, notesFile, sumsFile, "druid-", "etcd-cluster-", "kubectl-druid-"}

// empty makes the directory of the release and removes an earlier one. It refuses a directory that has something else.
func (r *release) empty() error {
	entries, err := os.ReadDir(r.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !slices.ContainsFunc(ourFiles, func(prefix string) bool { return strings.HasPrefix(e.Name(), prefix) }) {
			return fmt.Errorf("%s has the file %s, which no release has: choose another directory", r.out, e.Name())
		}
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.MkdirAll(r.out, 0o755)
}

// write writes a file of the release.
func (r *release) write(name string, content func(io.Writer) error) error {
	var all bytes.Buffer
	if err := content(&all); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(r.out, name), all.Bytes(), plainMode)
}

// writeTools writes an archive with the program and the license for each tool and platform.
func (r *release) writeTools(ctx context.Context, b *builder) error {
	license, err := os.ReadFile(filepath.Join(r.repo, "LICENSE"))
	if err != nil {
		return err
	}
	for _, t := range r.tools {
		for _, p := range t.platforms {
			r.say("building %s for %s", t.name, p)
			program, err := b.build(ctx, t.name, p)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(program.file)
			if err != nil {
				return err
			}
			if err := r.writeTool(t.name, p, content, license); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTool writes the archive of a tool for a platform. That of the plugin has its completion too, where there is a shell to run it.
func (r *release) writeTool(name string, p platform, program, license []byte) error {
	entries := []entry{{name + p.extension(), programMode, program}, {"LICENSE", plainMode, license}}
	archive := writeTarGzip
	switch {
	case p.os == "windows":
		archive = writeZip
	case name == pluginName:
		entries = append(entries, entry{completionName, programMode, []byte(completion)})
	default: // kubectl does not run the other tool
	}
	return r.write(archiveName(name, r.version, p), func(w io.Writer) error { return archive(w, r.at, entries) })
}
