package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	repoDir     = "../.."
	testVersion = version("v0.1.0-rc.1")
	// helmVariable is the environment variable with the path of Helm.
	helmVariable = "HELM"
)

// host runs the programs that the test builds. Another platform would be compiled from nothing, which takes minutes.
var host = platform{"linux", runtime.GOARCH}

var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A release is made twice, in two clones whose files have other times, and every other test reads the first one.
func TestRelease(t *testing.T) {
	public, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := made(t, repoDir, &key), made(t, copied(t), &key)
	one, other := contents(t, first.out), contents(t, second.out)
	if len(one) != len(other) || len(one) < 14 {
		t.Errorf("the releases have %d and %d files", len(one), len(other))
	}
	for name, content := range one {
		if !bytes.Equal(content, other[name]) {
			t.Errorf("%s has other bytes in the second release", name)
		}
	}
	t.Run("the image that is pulled by digest is that of the release", func(t *testing.T) { testPush(t, first) })
	t.Run("the archive for Docker has the same image", func(t *testing.T) { testDockerArchive(t, first) })
	t.Run("the SBOM lists what the programs link", func(t *testing.T) { testSBOM(t, first) })
	t.Run("the manifests name the image", func(t *testing.T) { testInstall(t, one[installFile]) })
	t.Run("the bundle is that of the manifests", func(t *testing.T) { testBundle(t, first) })
	t.Run("the chart names the image", func(t *testing.T) { testChart(t, first) })
	t.Run("the archive of a tool has the program", func(t *testing.T) { testTool(t, first) })
	t.Run("the signature is that of the checksums", func(t *testing.T) {
		if !minisign.Verify(public, one[sumsFile], one[signatureFile]) {
			t.Error("the signature is not valid")
		}
		if minisign.Verify(public, append(one[sumsFile], '\n'), one[signatureFile]) {
			t.Error("the signature is valid for other checksums")
		}
	})
	t.Run("the other signature is that of the checksums", func(t *testing.T) {
		signature, err := base64.StdEncoding.DecodeString(string(one[sumsFile+plainSuffix]))
		if err != nil {
			t.Fatal(err)
		}
		if key := readPublicKey(t, &key); !ed25519.Verify(key, one[sumsFile], signature) || ed25519.Verify(key, append(one[sumsFile], '\n'), signature) {
			t.Error("the signature is not valid, or is valid for other checksums")
		}
	})
	t.Run("the notes have the changes and the digest", func(t *testing.T) {
		notes := string(one["release-notes.md"])
		for _, want := range []string{"# druid v0.1.0-rc.1\n", "The first version.", first.imageName() + "@sha256:", first.commit} {
			if !strings.Contains(notes, want) {
				t.Errorf("want %q in\n%s", want, notes)
			}
		}
	})
	t.Run("a release replaces an earlier one", func(t *testing.T) {
		if err := second.empty(); err != nil {
			t.Error(err)
		}
	})
}

func made(t *testing.T, repo string, key *minisign.PrivateKey) release {
	t.Helper()
	root, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	r := release{
		repo: root, out: filepath.Join(t.TempDir(), "dist"), version: testVersion, commit: "0123456789abcdef", at: moment, key: key,
		imagePlatforms: []platform{host}, tools: []tool{{"druid-backup", []platform{host}}}, progress: io.Discard,
	}
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// copied returns another clone: what a release is built from, with the times of now.
func copied(t *testing.T) string {
	t.Helper()
	target := t.TempDir()
	err := filepath.WalkDir(repoDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repoDir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "test", "tools"}, name) {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(target, name), 0o755)
		}
		if name == ".git" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(target, name), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := filesOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		all[e.name] = e.content
	}
	return all
}

// testInstall reads the lines that name an image.
func testInstall(t *testing.T, text []byte) {
	t.Helper()
	var images []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		if image, ok := strings.CutPrefix(line, "image: ghcr.io/"); ok {
			images = append(images, image)
		}
	}
	if want := []string{"etcd-druid/druid:v0.1.0-rc.1"}; !slices.Equal(images, want) {
		t.Errorf("the images are %q, want %q", images, want)
	}
}

// testChart renders the package of the chart with Helm.
func testChart(t *testing.T, r release) {
	t.Helper()
	helm := os.Getenv(helmVariable)
	if helm == "" {
		t.Fatalf("%s is not set to the path of Helm: run go test ./test/release of the repository, which builds it", helmVariable)
	}
	file := filepath.Join(r.out, "druid-0.1.0-rc.1.tgz")
	rendered := output(t, helm, "template", "druid", file, "--namespace", "druid-system")
	if want := "image: \"" + r.imageName() + "\""; !strings.Contains(rendered, want) {
		t.Errorf("the chart renders no %q", want)
	}
	if shown := output(t, helm, "show", "chart", file); !strings.Contains(shown, "\nversion: 0.1.0-rc.1\n") {
		t.Errorf("Helm reads another version:\n%s", shown)
	}
}

func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, &said)
	}
	return string(out)
}

// testTool runs the program from its archive.
func testTool(t *testing.T, r release) {
	t.Helper()
	f, err := os.Open(filepath.Join(r.out, fmt.Sprintf("druid-backup-%s-linux-%s.tar.gz", r.version, host.arch)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	compressed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, compressed)
	if len(files["LICENSE"]) == 0 {
		t.Error("the archive has no LICENSE")
	}
	expectVersion(t, files["druid-backup"])
}

// expectVersion runs a program, which says the version of the release.
func expectVersion(t *testing.T, content []byte) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, content, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(output(t, program, "version")); got != string(testVersion) {
		t.Errorf("the program says %q, want %s", got, testVersion)
	}
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(r); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

func TestAZipHasTheModesOfUnix(t *testing.T) {
	var content bytes.Buffer
	if err := writeZip(&content, moment, []entry{{"program.exe", programMode, []byte("x")}, {"LICENSE", plainMode, nil}}); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(content.Bytes()), int64(content.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if got := archive.File[0]; got.Mode() != programMode || !got.Modified.Equal(moment) || archive.File[1].Mode() != plainMode {
		t.Errorf("got %v of %v", got.Mode(), got.Modified)
	}
}

// serve runs a registry on a free port of this machine.
func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/druid"
}

func sum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

func mustPush(ctx context.Context, t *testing.T, r release, to string) v1.Hash {
	t.Helper()
	pushed, err := push(ctx, r.out, r.version, to, r.imagePlatforms)
	if err != nil {
		t.Fatal(err)
	}
	_, digest, _ := strings.Cut(pushed, "@")
	hash, err := v1.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
