package stories

import (
	"slices"
	"testing"
)

// The software whose versions stories change.
const (
	Etcd  = "etcd"
	Druid = "druid and its agents"
)

// Upgrade is a row of what stories upgrade and roll back under a writer. docs/reference/compatibility.md lists the same rows.
type Upgrade struct {
	// Story performs it.
	Story string
	// Of is the software.
	Of string
	// Versions are the first one and, in their order, those that it is changed to: minors of etcd, and releases of druid.
	Versions []string
}

// Upgrades has all changes of version. The releases of druid have the same sources, as long as no release is published.
var Upgrades = []Upgrade{
	{"TestVersionChangeUnderLoad", Etcd, []string{"3.6", "3.7"}},
	{"TestVersionsChangeThereAndBackUnderLoad", Etcd, []string{"3.5", "3.6", "3.7", "3.6"}},
	{"TestReleaseUpgradeAndRollback", Druid, []string{"v0.1.0", "v0.2.0", "v0.1.0"}},
}

// Versions are those that the story changes.
func Versions(t testing.TB) []string {
	t.Helper()
	i := slices.IndexFunc(Upgrades, func(u Upgrade) bool { return u.Story == t.Name() })
	if i < 0 {
		t.Fatalf("%s has no row in the table of upgrades in test/e2e/stories", t.Name())
	}
	return Upgrades[i].Versions
}
