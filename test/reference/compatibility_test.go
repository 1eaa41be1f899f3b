package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// ran is a row of what tests run next to druid.
type ran struct {
	software string
	// pins are the modules whose versions the tests run: the folder with the go.mod that pins one, and the path of the module.
	pins [][2]string
	// test runs them. It is a story, or a function in the folder.
	test, folder string
}

var etcdPins = [][2]string{
	{"tools/etcd35", "go.etcd.io/etcd/server/v3"}, {"tools/etcd36", "go.etcd.io/etcd/server/v3"}, {"tools/etcd37", "go.etcd.io/etcd/server/v3"},
}

// neighbours are the programs and libraries that tests run next to druid.
var neighbours = []ran{
	{"Kubernetes", [][2]string{{"tools/kubernetes", "k8s.io/kubernetes"}}, "TestTutorialOfTheFirstClusterIsTrue", "test/e2e"},
	{"etcd", etcdPins, "TestThreeMembersFormWithEveryMinorOfEtcd", "test/e2e"},
	{"Helm", [][2]string{{"tools/helm", "helm.sh/helm/v3"}, {"tools/helm", "helm.sh/helm/v4"}}, "TestReleasesKeepEtcdClusters", "manifests/chart"},
	{"krew", [][2]string{{"tools/krew", "sigs.k8s.io/krew"}}, "TestKrewInstallsThePlugin", "tools/release"},
	{"cert-manager", [][2]string{{"tools/certmanager", "github.com/cert-manager/cert-manager"}}, "TestCertManagerRenewsUnderAWriter", "test/e2e"},
	{
		"versitygw, an S3 server", [][2]string{{"tools/versitygw", "github.com/versity/versitygw"}},
		"TestDamagedFullAndStoreOutage", "test/e2e",
	},
	{
		"Prometheus, as the module `github.com/prometheus/prometheus`", [][2]string{{"tools/prometheus", "github.com/prometheus/prometheus"}},
		"TestPrometheusFiresEachAlert", "manifests/monitoring",
	},
}

func TestCompatibility(t *testing.T) {
	var page strings.Builder
	page.WriteString(compatibilityPreface + "\n## Programs next to druid\n\n| Program | Versions | Test |\n| --- | --- | --- |\n")
	for _, r := range neighbours {
		var versions []string
		for _, p := range r.pins {
			versions = append(versions, pinned(t, p[0], p[1]))
		}
		exists(t, r.folder, r.test)
		fmt.Fprintf(&page, "| %s | %s | `%s` in `%s` |\n", r.software, strings.Join(versions, ", "), r.test, r.folder)
	}
	page.WriteString(upgradesPreface + "\n| What changes | From | To | Test |\n| --- | --- | --- | --- |\n")
	for _, u := range stories.Upgrades {
		exists(t, "test/e2e", u.Story)
		for i, to := range u.Versions[1:] {
			fmt.Fprintf(&page, "| %s | %s | %s | `%s` |\n", u.Of, release(t, u, u.Versions[i]), release(t, u, to), u.Story)
		}
	}
	golden.File(t, pages+"compatibility.md", page.String())
}

const compatibilityPreface = `# Compatibility

<!-- Written by go test ./test/reference -update: do not edit. -->

This page lists the versions that the tests of druid run. Other versions can work, but no test shows it. druid needs Kubernetes 1.32 or newer. The
tests run only the version in the table.
`

const upgradesPreface = `
## Changes of version under a writer

Each row is a change that a test makes while a client writes. The test fails if an acknowledged write is lost. While druid and its agents change,
no etcd restarts.

No release of druid is published yet. So the releases in the table have the same sources and different versions.
`

// release is the full version of a minor of etcd, and a release of druid as it is.
func release(t *testing.T, u stories.Upgrade, version string) string {
	t.Helper()
	if u.Of != stories.Etcd {
		return version
	}
	full, err := binaries.EtcdVersion(root, version)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(full, "v")
}

// pinned is the version, without a v, that the file go.mod of a folder requires of a module.
func pinned(t *testing.T, folder, module string) string {
	t.Helper()
	full, err := binaries.Pinned(filepath.Join(root, folder), module)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(full, "v")
}

// exists fails the test unless a folder has the test that a row names.
func exists(t *testing.T, folder, test string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+test+"(t *testing.T)") {
			return
		}
	}
	t.Errorf("%s has no %s", folder, test)
}
