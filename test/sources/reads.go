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
	"strings"
)

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	EmbedFiles []string
}

// Reads opens all that `go build` reads of the repository's module for the packages pkgs, so that Go's test cache knows that the result of
// the calling test rests on it: the folder of each package, which stands for its files and for new ones, what they embed, and go.mod
// and go.sum. pkgs are relative to repo, as "./cmd/druid".
func Reads(ctx context.Context, repo string, pkgs ...string) error {
	repo, err := filepath.Abs(repo)
	if err != nil {
		return err
	}
	args := append([]string{"list", "-deps", "-json=ImportPath,Dir,EmbedFiles"}, pkgs...)
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
		if _, err := os.ReadDir(p.Dir); err != nil {
			return fmt.Errorf("read the folder of %s: %w", p.ImportPath, err)
		}
		for _, file := range p.EmbedFiles {
			if _, err := os.Stat(filepath.Join(p.Dir, file)); err != nil {
				return fmt.Errorf("look at what %s embeds: %w", p.ImportPath, err)
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
