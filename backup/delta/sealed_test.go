package delta

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
)

// A delta is read from any place, in pieces and as a whole.
func TestASealedDeltaReadsAsOneAnywhere(t *testing.T) {
	s := &Sealed{parts: [][]byte{[]byte("one"), {}, []byte("two"), []byte("three")}, Size: 11}
	if err := iotest.TestReader(s.Reader(), []byte("onetwothree")); err != nil {
		t.Error(err)
	}
	for from := range s.Size + 1 {
		r := s.Reader()
		if at, err := r.Seek(from, io.SeekStart); at != from || err != nil {
			t.Fatalf("seek to %d: %d, %v", from, at, err)
		}
		var rest bytes.Buffer
		if n, err := io.Copy(&rest, r); n != s.Size-from || err != nil || rest.String() != "onetwothree"[from:] {
			t.Errorf("from %d on there are %d bytes, %q: %v", from, n, rest.String(), err)
		}
		if at, err := r.Seek(0, io.SeekCurrent); at != s.Size || err != nil {
			t.Errorf("at the end it is at %d: %v", at, err)
		}
	}
}
