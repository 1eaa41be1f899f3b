package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// longest is how many bytes of a page people write at most: what a reader skims in a few minutes.
const longest = 10_000

var (
	// written is the line near the top of a page that a test writes as a whole.
	written = regexp.MustCompile("(?m)^(<!-- )?Written by `?go test [^\n]*: do not edit\\.?( -->)?$")
	// rendered is a section of a page that a test writes.
	rendered = regexp.MustCompile(`(?s)<!-- begin (\S+) -->.*?<!-- end (\S+) -->`)
	// marked is a comment that readers do not see: why no test runs a block.
	marked = regexp.MustCompile("(?m)^ *<!-- not run: .+ -->\n")
)

func TestPagesAreShort(t *testing.T) {
	paths, err := filepath.Glob("../../*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d pages at the root of the repository, %v", len(paths), err)
	}
	err = filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" && !strings.Contains(path, "node_modules") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := byHand(string(text)); got > longest {
			t.Errorf("%s has %d bytes that no test renders, want %d at most: delete what other pages say, or split the page by purpose", path, got, longest)
		}
	}
}

// byHand is how many bytes of a page no test renders, and readers see.
func byHand(text string) int {
	if written.MatchString(text) {
		return 0
	}
	return len(marked.ReplaceAllString(rendered.ReplaceAllString(text, ""), ""))
}

func TestBytesThatNoTestRenders(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"a page":                              {"# A\n", 4},
		"a page with a rendered section":      {"# A\n<!-- begin a -->\n| a |\n<!-- end a -->\n", 5},
		"text between two such sections":      {"<!-- begin a -->a<!-- end a -->b<!-- begin c -->c<!-- end c -->", 1},
		"a rendered page":                     {"# A\n\n<!-- Written by go test ./test/reference -update: do not edit. -->\n\na\n", 0},
		"a rendered page, in words":           {"# A\n\nWritten by `go test ./test/crash/points -update` from the code: do not edit.\n", 0},
		"a page that mentions the tests":      {"Written by go test.\n", 20},
		"a block that no test runs":           {"# A\n  <!-- not run: it needs a cloud -->\n", 4},
		"a section that does not end is text": {"<!-- begin a -->\n", 17},
	} {
		t.Run(name, func(t *testing.T) {
			if got := byHand(c.text); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
