package release

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/sources"
)

// The tests of the module build a release from the repository, render its chart by Helm, and install its plugin by krew.
func TestTheModulePassesItsTests(t *testing.T) {
	t.Parallel()
	repo, err := binaries.RepoDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := sources.Reads(t.Context(), repo, "./cmd/..."); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tools/release", "charts/druid", "manifests/install", "docs/samples", "internal/webui/assets/icon.svg",
		"docs/reference/changelog.md", "LICENSE"} {
		look(t, filepath.Join(repo, name))
	}
	built, err := binaries.Programs(t.Context(), t.Logf, "helm-4", "krew", "validate-krew-manifest", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=30m", "./...")
	cmd.Dir = filepath.Join(repo, "tools", "release")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "PWD=", "HELM="+built["helm-4"],
		"KREW="+built["krew"], "VALIDATE_KREW_MANIFEST="+built["validate-krew-manifest"], "KUBECTL="+built["kubectl"])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// look opens all files, so that the cache of go test knows that the result rests on them.
func look(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
