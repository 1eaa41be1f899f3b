package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteIsAnArchiveThatDockerLoads(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(src, []byte("binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Ref: "registry.rig/x:1", Entrypoint: []string{"/usr/bin/x"}, User: "65532:65532",
		Files: []File{{"/usr/bin/x", src}}, Dirs: []string{"/var/lib/x"},
	}
	var a, b bytes.Buffer
	for _, w := range []io.Writer{&a, &b} {
		if err := Write(w, spec); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two archives of the same image differ")
	}
	files := untar(t, a.Bytes())
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(manifest[0].RepoTags, []string{spec.Ref}); d != "" {
		t.Error(d)
	}
	var config struct{ Config struct{ User string } }
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if config.Config.User != spec.User {
		t.Errorf("got user %q, want %q", config.Config.User, spec.User)
	}
	layer := untar(t, files[manifest[0].Layers[0]])
	if got := string(layer["usr/bin/x"]); got != "binary" {
		t.Errorf("got content %q, want the file's", got)
	}
	for _, dir := range []string{"usr/", "usr/bin/", "tmp/", "var/lib/x/"} {
		if _, ok := layer[dir]; !ok {
			t.Errorf("the layer has no directory %s", dir)
		}
	}
}

func untar(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = content
	}
}
