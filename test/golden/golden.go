package golden

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files again")

// File compares got with the file at path.
func File(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		write(t, path, got)
		return
	}
	if diff := cmp.Diff(read(t, path), got); diff != "" {
		t.Errorf("%s differs; run the test with -update if that is meant (-file +got):\n%s", path, diff)
	}
}

// Section compares got with the section called name of the Markdown file at path. Tests of several packages may update
// sections of one file at once.
func Section(t testing.TB, path, name, got string) {
	t.Helper()
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->\n", name)
	section := begin + strings.TrimSpace(got) + "\n" + end
	if *update {
		lock(t, path)
		content := read(t, path)
		if before, rest, ok := strings.Cut(content, begin); ok {
			_, after, _ := strings.Cut(rest, end)
			content = before + section + after
		} else {
			content = strings.TrimRight(content, "\n") + "\n\n" + section
		}
		write(t, path, strings.TrimLeft(content, "\n"))
		return
	}
	_, rest, _ := strings.Cut(read(t, path), begin)
	body, _, _ := strings.Cut(rest, end)
	if diff := cmp.Diff(begin+body+end, section); diff != "" {
		t.Errorf("section %s of %s differs; run the test with -update if that is meant (-file +got):\n%s", name, path, diff)
	}
}

// Table renders rows as a Markdown table.
func Table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(header)
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

func read(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(raw)
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lock holds the file's directory until the test ends, so that packages that are tested at once update one after another.
func lock(t testing.TB, path string) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}
