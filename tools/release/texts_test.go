package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"aead.dev/minisign"
)

func TestVersions(t *testing.T) {
	for text, good := range map[string]bool{
		"v0.1.0": true, "v10.20.30": true, "v0.1.0-rc.1": true, "v1.0.0-alpha-2": true,
		"": false, "0.1.0": false, "v0.1": false, "v01.0.0": false, "v0.1.0-": false, "v0.1.0-01": false, "v0.1.0+build": false, "v0.1.0\n": false,
		"v0.1.0 ": false, "latest": false, "v0.1.0-" + strings.Repeat("a", tagLength): false,
	} {
		_, err := parseVersion(text)
		if good != (err == nil) {
			t.Errorf("version %q: %v", text, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "the version ") {
			t.Errorf("version %q: the error does not say what is wrong: %v", text, err)
		}
	}
}

func TestArguments(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no command":        {nil, "want the command make, push or key"},
		"unknown command":   {[]string{"build"}, "want the command make, push or key"},
		"no version":        {[]string{"make"}, "the version is empty"},
		"bad version":       {[]string{"make", "--version", "1.0"}, `the version is "1.0"`},
		"one argument more": {[]string{"push", "--version", "v0.1.0", "more"}, `unknown argument "more"`},
		"unknown platform":  {[]string{"make", "--version", "v0.1.0", "--platforms", "linux/amd64,linux/mips"}, `unknown platform "linux/mips"`},
		"no image":          {[]string{"make", "--version", "v0.1.0", "--platforms", "darwin/arm64"}, "have none of the image"},
		"no key":            {[]string{"make", "--version", "v0.1.0", "--key", "none"}, "read the key"},
		"no key to print":   {[]string{"key"}, "the flag --key is not set"},
		"no image to push":  {[]string{"push", "--version", "v0.1.0", "--platforms", "darwin/arm64", "--to", "localhost/druid"}, "have none of the image"},
		"part of a release": {[]string{"push", "--version", "v0.1.0", "--platforms", "linux/amd64"}, "takes only the image of all platforms"},
		"no repository":     {[]string{"make", "--version", "v0.1.0", "--repo", t.TempDir()}, "built from a clone of the repository"},
	} {
		if err := run(t.Context(), test.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

func TestPlatforms(t *testing.T) {
	var all, some release
	if err := all.choose(""); err != nil {
		t.Fatal(err)
	}
	if len(all.imagePlatforms) != 2 || len(all.tools) != len(tools) || len(all.tools[0].platforms) != 6 {
		t.Errorf("all platforms are %v and %v", all.imagePlatforms, all.tools)
	}
	if err := some.choose("linux/arm64,darwin/arm64"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(some.imagePlatforms, some.tools[0].platforms); got != "[linux/arm64] [linux/arm64 darwin/arm64]" {
		t.Errorf("the chosen platforms are %s", got)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAReleaseIsBuiltFromACommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write(t, dir, "a", "a")
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "a")
	r := release{repo: dir}
	if err := r.readCommit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.commit) != 40 || !r.at.Equal(moment) {
		t.Errorf("got the commit %s at %s", r.commit, r.at)
	}
	write(t, dir, "b", "b")
	if err := r.readCommit(t.Context()); err == nil || !strings.Contains(err.Error(), "commit or remove them first\n?? b") {
		t.Errorf("with a file that is not committed: %v", err)
	}
}

// TestChangelogHasEachVersion: the changelog has a section for each version, which says what users do before they upgrade.
func TestChangelogHasEachVersion(t *testing.T) {
	const two, one = "Two.\n\n### Before you upgrade\n\nNothing.\n\n### More\n\nMore.", "One.\n\n### Before you upgrade\n\nStop."
	dir := t.TempDir()
	write(t, dir, changelogFile, "# Changelog\n\nText.\n\n## Version 0.2.0\n\n"+two+"\n\n## Version 0.1.1\n\nNo steps.\n\n## Version 0.1.0\n\n"+one+"\n")
	for v, want := range map[version]string{"v0.2.0": two, "v0.2.0-rc.1": two, "v0.1.0": one, "v0.1.1": "", "v0.1.2": "", "v0.1": ""} {
		r := release{repo: dir, version: v}
		got, err := r.changes()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", v, got, err, want)
		}
	}
	t.Run("the page of this repository", func(t *testing.T) {
		const repo = "../.."
		text, err := os.ReadFile(filepath.Join(repo, changelogFile))
		if err != nil {
			t.Fatal(err)
		}
		versions := regexp.MustCompile(`(?m)^## Version (\S+)$`).FindAllStringSubmatch(string(text), -1)
		if len(versions) == 0 {
			t.Error("the changelog has no version")
		}
		for _, v := range versions {
			r := release{repo: repo, version: version("v" + v[1])}
			if _, err := r.changes(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestUnknownManifestShapeRefused: manifests and charts of an unknown shape are refused.
func TestUnknownManifestShapeRefused(t *testing.T) {
	dir := t.TempDir()
	r := release{repo: dir, out: t.TempDir(), version: testVersion}
	write(t, dir, "manifests/install/install.yaml", "image: "+repository+":v1\n")
	if err := r.writeInstall(); err == nil || !strings.Contains(err.Error(), "0 times, want 1") {
		t.Errorf("manifests that name another image: %v", err)
	}
	write(t, dir, "charts/druid/.helmignore", "*.tmp\n")
	write(t, dir, "charts/druid/Chart.yaml", "version: 0\n")
	if err := r.writeChart(chartFolders[0]); err == nil || !strings.Contains(err.Error(), "0 lines with appVersion, want 1") {
		t.Errorf("a chart without appVersion: %v", err)
	}
	if !ignored("*.tmp\n", "templates/a.tmp") || ignored("*.tmp\n", "templates/a.yaml") {
		t.Error(".helmignore has no effect")
	}
}

func TestADirectoryThatIsNoReleaseStays(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "mine", "x")
	write(t, dir, installFile, "x")
	r := release{out: dir}
	if err := r.empty(); err == nil || !strings.Contains(err.Error(), "has the file mine, which no release has") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "mine")); err != nil {
		t.Fatal(err)
	}
	if err := r.empty(); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := key.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := minisign.EncryptKey("password", key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "plain", string(plain))
	write(t, dir, "encrypted", string(encrypted))
	write(t, dir, "other", "other")
	for name, test := range map[string]struct{ file, password, want string }{
		"without a password":         {"plain", "", ""},
		"with its password":          {"encrypted", "password", ""},
		"with a password that lacks": {"encrypted", "", "set it in the variable " + passwordVariable},
		"with another password":      {"encrypted", "other", "read the key"},
		"that is no key":             {"other", "", "create one with minisign -G"},
	} {
		got, err := readKey(filepath.Join(dir, test.file), test.password)
		switch {
		case test.want == "" && (err != nil || !got.Equal(key)):
			t.Errorf("a key %s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("a key %s: got %v, want %s", name, err, test.want)
		}
	}
}

// krew finds the archive of each platform, and the program in it.
func TestTheManifestForKrewNamesEachArchive(t *testing.T) {
	windows := platform{"windows", "amd64"}
	r := release{out: t.TempDir(), version: testVersion, tools: []tool{{"druid-backup", everywhere}, {pluginName, []platform{host, windows}}}}
	for _, p := range []platform{host, windows} {
		write(t, r.out, archiveName(pluginName, r.version, p), "archive of "+p.String())
	}
	if err := r.writeKrew(); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(r.out, krewFile))
	if err != nil {
		t.Fatal(err)
	}
	url := "uri: " + downloads + "/v0.1.0-rc.1/kubectl-druid-v0.1.0-rc.1-"
	for _, want := range []string{
		"version: v0.1.0-rc.1\n",
		"os: linux\n        arch: " + host.arch + "\n    " + url + host.os + "-" + host.arch + ".tar.gz\n    sha256: " +
			sum([]byte("archive of "+host.String())) + "\n    bin: kubectl-druid\n",
		url + "windows-amd64.zip\n    sha256: " + sum([]byte("archive of "+windows.String())) + "\n    bin: kubectl-druid.exe\n",
	} {
		if !strings.Contains(string(manifest), want) {
			t.Errorf("want %q in\n%s", want, manifest)
		}
	}
	if found := strings.Count(string(manifest), "selector:"); found != 2 {
		t.Errorf("the manifest has %d platforms, want 2\n%s", found, manifest)
	}
}
