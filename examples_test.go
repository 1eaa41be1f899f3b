package druid_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// A program in a page compiles with the client of etcd that this repository uses.
func TestTheProgramForClientsCompiles(t *testing.T) {
	page, err := os.ReadFile("docs/how-to/secure/connect-clients.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(page, -1)
	if len(programs) != 1 {
		t.Fatalf("the page has %d programs, want 1", len(programs))
	}
	path := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(path, programs[0][1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", os.DevNull, path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt -l: %v\n%s", err, out)
	}
}
