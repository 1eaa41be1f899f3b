package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/sources"
)

// linkerFlag is how a build reports the programs their version.
const linkerFlag = "-X github.com/etcd-druid/druid/internal/cli.version="

func TestProgramsPrintTheVersionThatTheirBuildSet(t *testing.T) {
	for _, program := range []string{"druid", "agent"} {
		t.Run(program, func(t *testing.T) {
			if err := sources.Reads(t.Context(), "../..", "./cmd/"+program); err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(t.TempDir(), program)
			build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w "+linkerFlag+"v1.2.3", "-o", binary, "../../cmd/"+program)
			// As all other builds of the programs, so that the build cache knows them.
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build %s: %v\n%s", program, err, out)
			}
			out, err := exec.CommandContext(t.Context(), binary, "version").Output()
			if err != nil || string(out) != "v1.2.3\n" {
				t.Errorf("got %q, %v; want v1.2.3", out, err)
			}
		})
	}
}

// A flag for a variable that does not exist is ignored by the linker without a word.
func TestBuildsSetTheVersionThatThereIs(t *testing.T) {
	for _, file := range []string{"Dockerfile", "test/rig/images/images.go"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), linkerFlag) {
			t.Errorf("%s does not build with %s…", file, linkerFlag)
		}
	}
}
