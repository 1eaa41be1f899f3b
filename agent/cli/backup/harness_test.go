package backup

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/test/bucket"
)

const (
	first  = catalog.Lineage("00000001-aa")
	second = catalog.Lineage("00000002-bb")
	demo   = "ns/demo"
)

func TestMain(m *testing.M) { os.Exit(bucket.Main(m)) }

// run runs the command as the program does, and returns its output, its exit code and its error.
func run(t *testing.T, args ...string) (out string, code int, failure string) {
	t.Helper()
	var stderr bytes.Buffer
	out, code = runOn(t, &stderr, args...)
	// The output before it is progress.
	if _, said, failed := strings.Cut("\n"+stderr.String(), "\nagent backup "); failed {
		_, failure, _ = strings.Cut(strings.TrimSpace(said), ": ")
	}
	return out, code, failure
}

// runOn is run with another standard error.
func runOn(t *testing.T, stderr io.Writer, args ...string) (out string, code int) {
	t.Helper()
	var stdout bytes.Buffer
	root := &cobra.Command{Use: "agent"}
	root.AddCommand(Command())
	root.SetOut(&stdout)
	root.SetArgs(append([]string{"backup"}, args...))
	root.SetErr(stderr)
	code = cli.Main(t.Context(), root, slog.New(slog.DiscardHandler))
	return stdout.String(), code
}

// ok runs a command that must succeed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	out, code, failure := run(t, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s\n%s", args, code, failure, out)
	}
	return out
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in\n%s", part, text)
		}
	}
}

func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

func directory(t *testing.T) (url string, s store.Store) {
	t.Helper()
	path := t.TempDir()
	s, err := dir.Open(store.Directory{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return "dir://" + path, s
}

func put(t *testing.T, s store.Store, key, content string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, strings.NewReader(content), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// credentials returns a directory like a mounted Secret.
func credentials(t *testing.T, access, secret string) string {
	t.Helper()
	path := t.TempDir()
	for name, content := range map[string]string{"accessKeyID": access, "secretAccessKey": secret} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
