package stories

import (
	"go/ast"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChangeSelectsPackageStories: a change touches the stories of its package and is near those of its importers.
func TestChangeSelectsPackageStories(t *testing.T) {
	imports := map[string][]string{
		"cmd/druid": {"druid"}, "druid": {"leases", "manifests"}, "manifests": nil, "leases": nil, "backup/store": nil, "backup/store/s3": {"backup/store"},
	}
	table := []Story{
		{Name: "OfDruid", Of: "druid"}, {Name: "OfLeases", Of: "leases"}, {Name: "OfManifests", Of: "manifests"}, {Name: "OfBackups", Of: "backup/..."},
	}
	tests := map[string][]*ast.FuncDecl{"some_test.go": {{Name: &ast.Ident{Name: "OfBackups"}}}}
	type of = map[string]Closeness
	for name, c := range map[string]struct {
		changed []string
		want    of // far where it says nothing
	}{
		"nothing":                              {nil, of{}},
		"a package":                            {[]string{"druid/run.go"}, of{"OfDruid": Touched}},
		"one that others import":               {[]string{"leases/member.go"}, of{"OfLeases": Touched, "OfDruid": Near}},
		"a file below a package":               {[]string{"manifests/install/druid.yaml"}, of{"OfManifests": Touched, "OfDruid": Near}},
		"a package below another":              {[]string{"backup/store/s3/s3.go"}, of{"OfBackups": Touched}},
		"a test of a package":                  {[]string{"druid/run_test.go", "leases/testdata/x.yaml"}, of{}},
		"the story itself":                     {[]string{"test/e2e/some_test.go"}, of{"OfBackups": Touched}},
		"what all stories share":               {[]string{"test/e2e/harness/writer.go", "test/rig/up.go"}, of{}},
		"a document":                           {[]string{"README.md", "docs/architecture.md"}, of{}},
		"which modules the programs are of":    {[]string{"go.mod"}, of{"OfDruid": Touched, "OfLeases": Touched, "OfManifests": Touched, "OfBackups": Touched}},
		"a package that is not there any more": {[]string{"backup/gone/gone.go"}, of{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Closest(table, c.changed, imports, tests)
			for _, s := range table {
				if got[s.Name] == Far {
					delete(got, s.Name)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("closeness (-want +got):\n%s", diff)
			}
		})
	}
}
