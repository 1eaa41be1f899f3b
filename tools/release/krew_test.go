package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The environment variables with the paths of the programs that install the plugin as a user does.
const (
	krewVariable      = "KREW"
	validatorVariable = "VALIDATE_KREW_MANIFEST"
	kubectlVariable   = "KUBECTL"
)

// krewWithin ends a program that waits for a network. Without one, each takes less than a second.
const krewWithin = 2 * time.Minute

// krewHome is the directory of a krew that reaches no network.
type krewHome struct {
	t        *testing.T
	dir      string
	platform platform
}

func newKrewHome(t *testing.T, p platform) krewHome {
	t.Helper()
	k := krewHome{t, t.TempDir(), p}
	// krew uninstalls nothing without an index, which is a clone of a git repository.
	if err := os.MkdirAll(filepath.Join(k.dir, "index", "default", ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	return k
}

// run runs a program, and returns what it printed to its output and its error output.
func (k krewHome) run(program string, args ...string) (string, error) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), krewWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // a program that it started can keep the outputs open
	// At port 1 of this machine, nothing listens.
	const refused = "http://127.0.0.1:1"
	bin := filepath.Join(k.dir, "bin")
	cmd.Env = []string{
		"HOME=" + k.dir, "KREW_ROOT=" + k.dir, "KREW_OS=" + k.platform.os, "KREW_ARCH=" + k.platform.arch, "KREW_NO_UPGRADE_CHECK=1",
		"HTTP_PROXY=" + refused, "HTTPS_PROXY=" + refused, "GIT_ALLOW_PROTOCOL=file", "GIT_TERMINAL_PROMPT=0",
		"KUBECONFIG=" + filepath.Join(k.dir, "none"), "TMPDIR=" + os.TempDir(), "PATH=" + bin + ":" + os.Getenv("PATH"),
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("run %s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (k krewHome) must(program string, args ...string) string {
	k.t.Helper()
	out, err := k.run(program, args...)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// is fails the test unless a file below the directory has the content.
func (k krewHome) is(name string, content []byte) {
	k.t.Helper()
	got, err := os.ReadFile(filepath.Join(k.dir, name))
	if err != nil {
		k.t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		k.t.Errorf("%s has %d other bytes, want %d", name, len(got), len(content))
	}
}

// link puts a program below the directory into the PATH.
func (k krewHome) link(name string) {
	k.t.Helper()
	if err := os.Symlink(filepath.Join(k.dir, name), filepath.Join(k.dir, "bin", filepath.Base(name))); err != nil {
		k.t.Fatal(err)
	}
}

// programOf is the path of a program that the test of the repository builds.
func programOf(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set to the path of the program: run go test ./test/release of the repository, which builds it", variable)
	}
	return path
}

// pluginRelease has the archives of the plugin for all platforms and the manifest. Only the program for this machine is the plugin.
func pluginRelease(t *testing.T) release {
	t.Helper()
	root, err := filepath.Abs(repoDir)
	if err != nil {
		t.Fatal(err)
	}
	r := release{repo: root, out: t.TempDir(), version: testVersion, at: moment, tools: []tool{{pluginName, everywhere}}, progress: &bytes.Buffer{}}
	b := &builder{repo: root, dir: t.TempDir(), version: testVersion}
	for _, p := range everywhere {
		content := []byte("program for " + p.String())
		if p == host {
			plugin, err := b.build(t.Context(), pluginName, p)
			if err != nil {
				t.Fatal(err)
			}
			if content, err = os.ReadFile(plugin.file); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.writeTool(pluginName, p, content, []byte("license")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeKrew(); err != nil {
		t.Fatal(err)
	}
	return r
}

// krew installs the plugin from the files of a release, and needs no network for it.
func TestKrewInstallsThePlugin(t *testing.T) {
	krew := programOf(t, krewVariable)
	r := pluginRelease(t)
	manifest := filepath.Join(r.out, krewFile)
	archive := func(p platform) string { return filepath.Join(r.out, archiveName(pluginName, r.version, p)) }
	t.Run("the check of krew accepts the manifest", func(t *testing.T) {
		content, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		write(t, dir, "druid.yaml", string(content)) // in an index, the file has the name of the plugin
		newKrewHome(t, host).must(programOf(t, validatorVariable), "-manifest", filepath.Join(dir, "druid.yaml"), "-skip-install")
	})
	t.Run("the plugin of this machine runs until it is uninstalled", func(t *testing.T) {
		k := newKrewHome(t, host)
		k.must(krew, "install", "--manifest="+manifest, "--archive="+archive(host))
		kubectl := programOf(t, kubectlVariable)
		if said := k.must(kubectl, "druid", "--help"); !strings.Contains(said, "kubectl druid [command]") {
			t.Errorf("kubectl druid --help prints\n%s", said)
		}
		// Without a Kubernetes, the command prints the version of the plugin and ends with an error.
		if said, _ := k.run(kubectl, "druid", "version"); !strings.Contains(said, string(testVersion)) {
			t.Errorf("kubectl druid version prints\n%s", said)
		}
		k.link(filepath.Join("store", "druid", string(testVersion), completionName))
		for typed, want := range map[string]string{"stat": "status\t", "status --out": "--output\t"} {
			args := append([]string{"__complete", "druid"}, strings.Fields(typed)...)
			if said := k.must(kubectl, args...); !strings.Contains(said, "\n"+want) {
				t.Errorf("kubectl druid %s<TAB> offers\n%s", typed, said)
			}
		}
		if said := k.must(krew, "list"); !strings.Contains(said, "druid") {
			t.Errorf("krew list prints\n%s", said)
		}
		k.must(krew, "uninstall", "druid")
		if said, err := k.run(kubectl, "druid", "--help"); err == nil {
			t.Errorf("after krew uninstalled it, kubectl druid --help prints\n%s", said)
		}
		for _, name := range []string{"bin/" + pluginName, "store/druid", "receipts/druid.yaml"} {
			if _, err := os.Lstat(filepath.Join(k.dir, name)); !os.IsNotExist(err) {
				t.Errorf("after krew uninstalled it, %s is there: %v", name, err)
			}
		}
	})
	for _, p := range everywhere {
		if p == host {
			continue
		}
		t.Run("krew finds the program of "+p.String(), func(t *testing.T) {
			k := newKrewHome(t, p)
			k.must(krew, "install", "--manifest="+manifest, "--archive="+archive(p))
			stored := filepath.Join("store", "druid", string(testVersion))
			k.is(filepath.Join(stored, pluginName+p.extension()), []byte("program for "+p.String()))
			k.is(filepath.Join(stored, "LICENSE"), []byte("license"))
			if p.os != "windows" {
				k.is(filepath.Join(stored, completionName), []byte(completion))
			}
			k.is(filepath.Join("bin", pluginName+p.extension()), []byte("program for "+p.String()))
		})
	}
	t.Run("the archive of another platform is refused", func(t *testing.T) {
		k := newKrewHome(t, host)
		said, err := k.run(krew, "install", "--manifest="+manifest, "--archive="+archive(platform{"darwin", "arm64"}))
		if err == nil || !strings.Contains(said, "checksum") {
			t.Errorf("krew installed it: %v\n%s", err, said)
		}
	})
}
