package druid_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/etcd-druid/druid"

// badDeps holds what a package must never link, however indirectly, and why. The linter's depguard rules hold the direct
// imports; only what is linked in the end reports whether a layer really holds.
var badDeps = map[string]struct {
	packages []string
	bad      map[string]string // prefix of an import path: why it must not be linked
}{
	"druid speaks only Kubernetes": {
		packages: []string{"./cmd/druid", "./druid/...", "./manifests/..."},
		bad: map[string]string{
			"go.etcd.io/":            "druid never dials etcd: what it knows of a member stands in the member's Lease",
			"github.com/aws/":        "druid never touches a backup store and holds no credentials of one",
			module + "/membership":   "membership speaks etcd, which druid never does",
			module + "/agent/launch": "only the agent talks to launch",
			module + "/test":         "test/ is imported by tests only",
		},
	},
	"the agent stays small": {
		packages: []string{"./cmd/agent", "./agent/..."},
		bad: map[string]string{
			"sigs.k8s.io/controller-runtime": "one agent runs next to every etcd: it patches a few Leases by name and needs no cache",
			"k8s.io/client-go/kubernetes":    "it links and registers every API of Kubernetes, 10 MiB of each agent's memory: leases.NewClient knows Leases",
			"k8s.io/client-go/informers":     "as the typed clients, which it links",
			"k8s.io/api/core":                "the agent asks for Leases and no other kind",
			module + "/api":                  "Leases are the only channel between druid and the agents",
			module + "/druid":                "Leases are the only channel between druid and the agents",
			module + "/manifests":            "the agent creates no Kubernetes object",
			module + "/test":                 "test/ is imported by tests only",
		},
	},
	"the plugin reads Kubernetes objects": {
		packages: []string{"./cmd/kubectl-druid", "./internal/plugin", "./internal/view", "./internal/webui"},
		bad: map[string]string{
			"sigs.k8s.io/controller-runtime": "a command for people needs no cache, and stays small",
			"go.etcd.io/":                    "what it knows of a member stands in the member's Lease",
			"github.com/aws/":                "it never touches a backup store",
			"filippo.io/":                    "it never sees a key",
			module + "/agent":                "the agents build for Linux only",
			module + "/druid":                "it works while druid is down, and next to another version of it",
			module + "/manifests":            "it creates no object of a cluster",
			module + "/membership":           "membership speaks etcd",
			module + "/test":                 "test/ is imported by tests only",
		},
	},
	"the view of a cluster is a pure function": {
		packages: []string{"./internal/view"},
		bad: map[string]string{
			"k8s.io/client-go/kubernetes": "it has no client",
			"k8s.io/client-go/dynamic":    "it has no client",
			"github.com/spf13/":           "it has no flags",
		},
	},
	"the web page reads through its source": {
		packages: []string{"./internal/webui"},
		bad: map[string]string{
			"k8s.io/client-go/kubernetes": "it has no client",
			"k8s.io/client-go/dynamic":    "it has no client",
			"github.com/spf13/":           "it has no flags",
		},
	},
	"the API types can be imported by anybody": {
		packages: []string{"./api/..."},
		bad: map[string]string{
			"k8s.io/client-go":               "types need no client",
			"k8s.io/apiserver":               "types need no server",
			"sigs.k8s.io/controller-runtime": "types must not force a version of controller-runtime on their users",
			"go.etcd.io/":                    "types know nothing of etcd's clients",
			"github.com/prometheus":          "types have no metrics",
			module + "/agent":                "api is a leaf",
			module + "/leases":               "api is a leaf",
			module + "/manifests":            "api is a leaf",
		},
	},
	"leases is the contract of both sides and a leaf": {
		packages: []string{"./leases/..."},
		bad: map[string]string{
			"go.etcd.io/":                    "it is linked into druid, which never dials etcd",
			"sigs.k8s.io/controller-runtime": "it is linked into the agent, which stays small",
			"k8s.io/client-go/kubernetes":    "it is linked into the agent, which asks for Leases and no other kind: Client is what it needs",
			module + "/agent":                "leases is a leaf",
			module + "/api":                  "leases is a leaf",
			module + "/membership":           "leases is a leaf",
		},
	},
	"membership knows etcd alone": {
		packages: []string{"./membership/..."},
		bad: map[string]string{
			"k8s.io/":            "what an etcd member is does not depend on Kubernetes",
			module + "/agent":    "membership is a leaf",
			module + "/api":      "membership is a leaf",
			module + "/leases":   "membership is a leaf",
			module + "/internal": "membership is a leaf",
		},
	},
	"backups know neither Kubernetes nor the agent": {
		packages: []string{"./backup/..."},
		bad: map[string]string{
			"k8s.io/":             "what a backup is does not depend on Kubernetes",
			module + "/agent":     "backups are a leaf: the agent uses them",
			module + "/api":       "backups are a leaf",
			module + "/druid":     "backups are a leaf",
			module + "/internal":  "backups are a leaf",
			module + "/manifests": "backups are a leaf",
			module + "/test":      "test/ is imported by tests only",
		},
	},
	"what a store is links no kind of store": {
		packages: []string{"./backup/store"},
		bad: map[string]string{
			"github.com/aws/":         "druid renders the configuration of a store, and never touches one",
			"go.etcd.io/":             "druid renders the configuration of a store, and never dials etcd",
			"filippo.io/":             "druid renders the configuration of a store, and never sees a key",
			module + "/backup/store/": "the interface must not depend on who satisfies it",
		},
	},
	"agent/config is what both sides agree on and a leaf": {
		packages: []string{"./agent/config"},
		bad: map[string]string{
			"go.etcd.io/":            "it is linked into druid, which never dials etcd",
			"k8s.io/client-go":       "flags need no client",
			module + "/agent/launch": "agent/config is a leaf",
			module + "/api":          "agent/config is a leaf",
			module + "/leases":       "agent/config is a leaf",
			module + "/membership":   "agent/config is a leaf",
		},
	},
}

// common packages depend on the standard library alone, and all packages can use them.
var common = []string{module + "/internal/loop", module + "/internal/rules"}

// leaves below internal that a layer can use although it uses no other package of internal.
var leaves = []string{module + "/internal/boltdb"}

// TestCommonPackagesLinkOnlyStdlib: common packages link only the standard library.
func TestCommonPackagesLinkOnlyStdlib(t *testing.T) {
	for _, p := range list(t, append([]string{"-deps"}, common...)...) {
		if !p.Standard && !slices.Contains(common, p.ImportPath) {
			t.Errorf("%v link %s, want only the standard library", common, p.ImportPath)
		}
	}
}

func TestLinkedPackagesKeepTheLayers(t *testing.T) {
	for name, rule := range badDeps {
		t.Run(name, func(t *testing.T) {
			linked := list(t, append([]string{"-deps"}, rule.packages...)...)
			for prefix, why := range rule.bad {
				isBad := func(p listed) bool {
					return strings.HasPrefix(p.ImportPath, prefix) && !slices.Contains(common, p.ImportPath) && !slices.Contains(leaves, p.ImportPath)
				}
				if i := slices.IndexFunc(linked, isBad); i >= 0 {
					t.Errorf("%v link %s: %s; go mod why and go list -deps report through whom", rule.packages, linked[i].ImportPath, why)
				}
			}
		})
	}
}

// One launch stays resident next to every etcd. What a library's package initialisation touches counts, used or not.
func TestLaunchLinksOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range list(t, "-deps", "./cmd/launch") {
		own := strings.HasPrefix(p.ImportPath, module+"/")
		if !own && !p.Standard && !strings.HasPrefix(p.ImportPath, "golang.org/x/sys/") {
			t.Errorf("cmd/launch links %s, want only the standard library and golang.org/x/sys", p.ImportPath)
		}
		if p.ImportPath == "net/http" {
			t.Error("cmd/launch links net/http, which doubles what it keeps resident: its probe is answered by hand")
		}
	}
}

func TestAPIImportsOnlyKubernetesTypes(t *testing.T) {
	allowed := []string{"k8s.io/api/", "k8s.io/apimachinery/", module + "/api/"}
	for _, p := range list(t, "./api/...") {
		for _, imported := range p.Imports {
			ok := slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(imported, prefix) })
			if isStandard := !strings.Contains(strings.Split(imported, "/")[0], "."); !ok && !isStandard {
				t.Errorf("%s imports %s, want only apimachinery and Kubernetes' own API types", p.ImportPath, imported)
			}
		}
	}
}

// People run the plugin on their own computers.
func TestThePluginBuildsForEverySystem(t *testing.T) {
	for _, system := range []string{"darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-e", "-f", "{{if .DepsErrors}}{{.ImportPath}}: {{.DepsErrors}}{{end}}",
				"./cmd/kubectl-druid")
			cmd.Env = append(cmd.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			if text := strings.TrimSpace(string(out)); err != nil || text != "" {
				t.Errorf("%s/%s: %v\n%s", system, arch, err, text)
			}
		}
	}
	// What is left is that the source uses nothing that only one system has.
	for _, p := range list(t, "./cmd/kubectl-druid", "./internal/plugin", "./internal/view", "./internal/webui") {
		for _, imported := range p.Imports {
			if imported == "syscall" || strings.HasPrefix(imported, "golang.org/x/sys/") {
				t.Errorf("%s imports %s, which differs between systems", p.ImportPath, imported)
			}
		}
	}
}

func TestEveryPackageReportsWhatItOwns(t *testing.T) {
	for _, p := range list(t, "./...") {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment: say in doc.go what it owns and what it must never do", p.ImportPath)
		}
	}
}

// listed is what `go list` reports about a package.
type listed struct {
	ImportPath, Dir, Doc          string
	GoFiles, TestGoFiles, Imports []string
	XTestGoFiles                  []string
	Standard                      bool
}

// list asks the go command about packages as they are built for Linux, where all of the product runs.
func list(t *testing.T, args ...string) []listed {
	t.Helper()
	fields := "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,Standard"
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", fields}, args...)...)
	cmd.Env = append(cmd.Environ(), "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list %v: %v\n%s", args, err, exit.Stderr)
		}
		t.Fatalf("go list %v: %v", args, err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			if len(all) == 0 {
				t.Fatalf("go list %v found no package", args)
			}
			return all
		case err != nil:
			t.Fatalf("go list %v: %v", args, err)
		}
		all = append(all, p)
	}
}
