package delta

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestEachLevelIsReadBackAndTheBestIsTheSmallest(t *testing.T) {
	fastest := int64(0)
	for level := zstd.EncoderLevel(0); level <= zstd.SpeedBestCompression; level++ {
		encoder, err := newEncoder(level)
		if err != nil {
			t.Fatal(err)
		}
		w := newWriter(Header{Lineage: "00000001-abc"}, encoder)
		for i := range int64(5000) {
			e := &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{
				Key: fmt.Appendf(nil, "/registry/pods/namespace-%d/name-%x", i%17, i*2654435761), Value: fmt.Appendf(nil, "node-%d is ready since %d", i%5, i*i),
			}}
			if err := w.Append(AppendKey(nil, i+2, 0, false), appendValue(nil, e), start); err != nil {
				t.Fatal(err)
			}
		}
		s, err := w.Finish(start, Leases{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := events(t, content(t, s)); n != 5000 {
			t.Errorf("level %v: %d events were read", level, n)
		}
		switch {
		case level == 0:
			fastest = s.Size
		case level == zstd.SpeedFastest && s.Size != fastest:
			t.Errorf("no level makes %d bytes, the fastest %d", fastest, s.Size)
		case level > zstd.SpeedFastest && s.Size == fastest:
			t.Errorf("level %v makes no other object than the fastest", level)
		case level == zstd.SpeedBestCompression && s.Size > fastest:
			t.Errorf("the best level makes %d bytes, the fastest %d", s.Size, fastest)
		}
	}
}

// events counts what a delta holds, which is read to its end.
func events(t *testing.T, content []byte) (n int) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(content), Expected{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		records, err := r.Next()
		if err == io.EOF { //nolint:errorlint // a broken connection may wrap it
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n += len(records)
	}
}
