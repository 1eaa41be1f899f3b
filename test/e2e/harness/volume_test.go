package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestFlippedByteKeepsLink: one byte of a log is flipped and the link stays.
func TestFlippedByteKeepsLink(t *testing.T) {
	t.Parallel()
	v := Volume{Dir: t.TempDir()}
	dir := filepath.Join(v.Dir, "data/member/wal")
	log, link := filepath.Join(dir, "0.wal"), filepath.Join(dir, "link")
	content := bytes.Repeat([]byte("record\x00\x00"), 100)
	content = append(content, make([]byte, 10_000)...)
	content[400] = 0 // the middle is no byte of a record
	if err := errorsOf(os.MkdirAll(dir, 0o700), os.WriteFile(log, content, 0o600), os.Link(log, link)); err != nil {
		t.Fatal(err)
	}
	v.FlipLog(t)
	kept, err := os.ReadFile(link)
	if err != nil || !bytes.Equal(kept, content) {
		t.Errorf("the link changed too (%v)", err)
	}
	got, err := os.ReadFile(log)
	if err != nil || len(got) != len(content) {
		t.Fatalf("the log has %d bytes, %v; want %d", len(got), err, len(content))
	}
	for i := range got {
		if (got[i] != content[i]) != (i == 401) {
			t.Errorf("byte %d is %x, and was %x", i, got[i], content[i])
		}
	}
}
