package pages

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/test/e2e/stories"
)

// docs is the folder of all pages, from that of this package.
const docs = "../../docs"

// allowed is how many blocks of a page no test runs. Add one here only if the rig cannot run it, and write the reason above the block.
var allowed = map[string]int{
	ReadMe:                               3,
	"how-to/install/agent-intervals.md":  1,
	"how-to/install/build-release.md":    3,
	"how-to/install/gitops.md":           2,
	"how-to/install/helm.md":             9,
	"how-to/install/install.md":          11,
	"how-to/install/limit-namespaces.md": 2,
	"how-to/install/olm.md":              7,
	"how-to/install/release.md":          11,
	"how-to/install/set-up-alerts.md":    1,
	"how-to/install/upgrade-druid.md":    2,
	"how-to/rescue/data-differs.md":      1,
	"how-to/rescue/manual-actions.md":    1,
	"how-to/rescue/node-lost.md":         1,
	"how-to/rescue/orphaned-objects.md":  1,
	"how-to/rescue/quarantined-data.md":  1,
	"how-to/rescue/quorum-lost.md":       1,
	"how-to/rescue/slow-disk.md":         1,
	"tutorials/connect-an-app.md":        2,
	"tutorials/lose-a-disk.md":           6,
}

// blocksOf reads the blocks of all pages in the folders.
func blocksOf(t *testing.T) map[string][]Block {
	t.Helper()
	all := map[string][]Block{}
	for _, name := range Further {
		blocks, err := Read(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = blocks
	}
	for _, folder := range Folders {
		files, err := filepath.Glob(filepath.Join(docs, folder, "*.md"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has %d pages, %v", folder, len(files), err)
		}
		for _, file := range files {
			blocks, err := Read(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(docs, file)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = blocks
		}
	}
	return all
}

func TestEachBlockIsRunByATestOrMarked(t *testing.T) {
	marked := map[string]int{}
	var toRun []string
	for page, blocks := range blocksOf(t) {
		for _, b := range blocks {
			if b.NotRun != "" {
				marked[page]++
			} else if !slices.Contains(toRun, page) {
				toRun = append(toRun, page)
			}
		}
	}
	run := slices.Sorted(maps.Keys(Stories))
	run = slices.Sorted(slices.Values(slices.AppendSeq(slices.AppendSeq(run, maps.Keys(Tests)), maps.Keys(Elsewhere))))
	if diff := cmp.Diff(run, slices.Sorted(slices.Values(toRun))); diff != "" {
		t.Errorf("other pages have blocks to run (-tables of stories and tests +pages):\n%s", diff)
	}
	if diff := cmp.Diff(allowed, marked); diff != "" {
		t.Errorf("other blocks are marked as not run (-allowed +pages):\n%s", diff)
	}
}

func TestEachStoryOfAPageFollowsIt(t *testing.T) {
	source := sourceOf(t, "../e2e")
	for page, story := range Stories {
		if _, ok := stories.Find(story); !ok {
			t.Errorf("%s is the story of %s, and test/e2e/stories has no row for it", story, page)
		}
		if !strings.Contains(source, `"`+page+`"`) {
			t.Errorf("no story of test/e2e opens %s", page)
		}
	}
	source = sourceOf(t, "../connect")
	for page, test := range Tests {
		if !strings.Contains(source, "func "+test+"(t *testing.T)") || !strings.Contains(source, `"`+page+`"`) {
			t.Errorf("test/connect has no %s that opens %s", test, page)
		}
	}
}

func TestEachOtherTestOfAPageExists(t *testing.T) {
	for page, test := range Elsewhere {
		source := sourceOf(t, "../../"+test.Dir)
		if !strings.Contains(source, "func "+test.Name+"(t *testing.T)") || page != ReadMe && !strings.Contains(source, page+`"`) {
			t.Errorf("%s has no %s that opens %s", test.Dir, test.Name, page)
		}
	}
}

// The excerpt of the ReadMe is the complete file that its commands apply.
func TestReadMeHasTheSample(t *testing.T) {
	sample, err := os.ReadFile(docs + "/samples/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocksOf(t)[ReadMe] {
		if b.NotRun == "" && (b.Language != YAML || b.Text+"\n" != string(sample)) {
			t.Errorf("README.md:%d: it is not docs/samples/demo.yaml", b.Line)
		}
	}
}

// sourceOf is the text of all tests in a directory.
func sourceOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has %d tests, %v", dir, len(files), err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	return source.String()
}

func TestEachPlaceholderIsKnown(t *testing.T) {
	used := map[string]bool{}
	for page, blocks := range blocksOf(t) {
		for _, b := range blocks {
			for _, s := range b.Steps {
				for _, word := range placeholder.FindAllString(s.Command, -1) {
					if Replaced[word] == "" && b.NotRun == "" {
						t.Errorf("%s:%d: no story knows what to replace %s with", page, s.Line, word)
					}
				}
				for word := range Replaced {
					used[word] = used[word] || strings.Contains(s.Command, word)
				}
			}
		}
	}
	for word := range Replaced {
		if !used[word] {
			t.Errorf("no command has %q", word)
		}
	}
}
