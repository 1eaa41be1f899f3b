package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	EmbedFiles []string
}

// Reads opens all that `go build` reads of the repository's module for the packages pkgs, so that Go's test cache knows that the result of
// the calling test rests on it: the files of each package but its tests, what they embed, the folders, which stand for new files, and go.mod
// and go.sum. pkgs are relative to repo, as "./cmd/druid".
func Reads(ctx context.Context, repo string, pkgs ...string) error {
	repo, err := filepath.Abs(repo)
	if err != nil {
		return err
	}
	args := append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,EmbedFiles"}, pkgs...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "PWD="+repo)
	cmd.Stderr = new(strings.Builder)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list what %s link: %w\n%s", strings.Join(pkgs, " "), err, cmd.Stderr)
	}
	opened := 0
	for list := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("list what %s link: %w", strings.Join(pkgs, " "), err)
		}
		if in, err := filepath.Rel(repo, p.Dir); err != nil || !filepath.IsLocal(in) {
			continue // of Go or of another module, which go.sum stands for
		}
		opened++
		files := slices.Concat([]string{"."}, p.GoFiles, p.EmbedFiles)
		for _, file := range p.EmbedFiles {
			files = append(files, filepath.Dir(file))
		}
		for _, file := range files {
			if _, err := os.Stat(filepath.Join(p.Dir, file)); err != nil {
				return fmt.Errorf("look at the files of %s: %w", p.ImportPath, err)
			}
		}
	}
	if opened == 0 {
		return fmt.Errorf("no package of %s is linked into %s; are they packages of this repository?", repo, strings.Join(pkgs, " "))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(repo, file)); err != nil {
			return fmt.Errorf("look at the versions of the modules: %w", err)
		}
	}
	return nil
}
