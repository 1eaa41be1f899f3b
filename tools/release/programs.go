package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// extension is what the name of a program ends with.
func (p platform) extension() string {
	if p.os == "windows" {
		return ".exe"
	}
	return ""
}

// imagePlatforms are the platforms of the image.
var imagePlatforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}}

// everywhere are the platforms of the programs that people run on their own machines.
var everywhere = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// only returns the platforms among all that the list names, or all if it is empty.
func only(all []platform, list string) ([]platform, error) {
	if list == "" {
		return all, nil
	}
	var some []platform
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(everywhere, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown platform %q: want one or more of %v with commas between them", name, everywhere)
		}
		if slices.Contains(all, everywhere[i]) {
			some = append(some, everywhere[i])
		}
	}
	return some, nil
}

// imageLayers are the programs of the image, below cmd/ of the repository: one list for each layer.
var imageLayers = [][]string{{"agent", "launch"}, {"druid"}}

// tool is a program below cmd/ that a release has as an archive for each platform.
type tool struct {
	name      string
	platforms []platform
}

var tools = []tool{
	{"druid-backup", everywhere},
	{"kubectl-druid", everywhere},
}

// built is a program in a file.
type built struct {
	name string
	platform
	file string
}

// builder builds each program once.
type builder struct {
	repo, dir string
	version   version
	done      []built
}

// build returns the file of a program. Its bytes depend on the sources, the version, the platform and the version of Go, and on
// nothing else of the machine.
func (b *builder) build(ctx context.Context, name string, p platform) (built, error) {
	out := built{name: name, platform: p, file: filepath.Join(b.dir, p.os+"-"+p.arch, name+p.extension())}
	flags := "-s -w -X github.com/etcd-druid/druid/internal/cli.version=" + string(b.version)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", out.file, "./cmd/"+name)
	cmd.Dir = b.repo
	// An empty variable would have the value of `go env -w`.
	cmd.Env = append(os.Environ(), "PWD="+b.repo, "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOFIPS140=off", "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return built{}, fmt.Errorf("build %s for %s: %w\n%s", name, p, err, strings.TrimSpace(string(said)))
	}
	b.done = append(b.done, out)
	return out, nil
}
