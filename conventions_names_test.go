package druid_test

import (
	"regexp"
	"strings"
	"testing"
)

// maxTestName is the length of the longest name of a test, with Test. A name says what is tested and what it does; the whole
// sentence is the doc comment, or the name of a subtest.
const maxTestName = 40

func TestNamesOfTestsAreShort(t *testing.T) {
	declared := regexp.MustCompile(`^func (Test\w*)\(`)
	found := 0
	eachLine(t, func(path string, number int, line string) {
		match := declared.FindStringSubmatch(line)
		if match == nil || !strings.HasSuffix(path, "_test.go") {
			return
		}
		found++
		if n := len(match[1]); n > maxTestName {
			t.Errorf("%s:%d: %s has %d characters, more than %d: move the sentence to the doc comment", path, number, match[1], n, maxTestName)
		}
	})
	if found == 0 {
		t.Fatal("no test was found")
	}
}
