package druid_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// maxLines is the length of the longest production file: one that is longer has more than one subject.
const maxLines = 350

// What is not production code, and what tools write, can be longer.
func TestProductionFilesAreShort(t *testing.T) {
	lines := map[string]int{}
	eachLine(t, func(path string, number int, line string) {
		base := filepath.Base(path)
		excepted := strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "tools/") || strings.HasPrefix(base, "zz_generated")
		if strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go") && !excepted && line != "" {
			lines[path] = number
		}
	})
	if len(lines) == 0 {
		t.Fatal("no production file was found")
	}
	for path, n := range lines {
		if n > maxLines {
			t.Errorf("%s has %d lines, more than %d: move one of its subjects to another file", path, n, maxLines)
		}
	}
}
