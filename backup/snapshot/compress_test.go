package snapshot

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// words is what etcd would send for a database of words.
func words() []byte {
	var db bytes.Buffer
	for i := 0; db.Len() < 512*sector; i++ {
		fmt.Fprintf(&db, "/registry/pods/namespace-%d/name-%x: node-%d is ready since %d;", i%17, i*2654435761, i%5, i*i)
	}
	db.Truncate(512 * sector)
	sum := sha256.Sum256(db.Bytes())
	return append(db.Bytes(), sum[:]...)
}

func TestEachLevelIsReadBackAndTheBestIsTheSmallest(t *testing.T) {
	stream, fastest := words(), 0
	for level := zstd.EncoderLevel(0); level <= zstd.SpeedBestCompression; level++ {
		var b bytes.Buffer
		if err := compress(&b, running(t, bytes.NewReader(stream)), &Trailer{Version: Version, Lineage: lineage}, level, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, bytes.NewReader(b.Bytes())); err != nil || !bytes.Equal(got, stream[:512*sector]) {
			t.Errorf("level %v: read %d bytes, %v", level, len(got), err)
		}
		switch {
		case level == 0:
			fastest = b.Len()
		case level == zstd.SpeedFastest && b.Len() != fastest:
			t.Errorf("no level makes %d bytes, the fastest %d", fastest, b.Len())
		case level > zstd.SpeedFastest && b.Len() == fastest:
			t.Errorf("level %v makes no other object than the fastest", level)
		case level == zstd.SpeedBestCompression && b.Len() > fastest:
			t.Errorf("the best level makes %d bytes, the fastest %d", b.Len(), fastest)
		}
	}
}
