package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/store"
)

// streamed returns what etcd would send for a database of n sectors.
func streamed(n int) []byte {
	db := make([]byte, n*sector)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(db[:len(db)/2]) // the other half compresses
	sum := sha256.Sum256(db)
	return append(db, sum[:]...)
}

// running reads the stream ahead until the test ends.
func running(tb testing.TB, stream io.Reader) *ReadAhead {
	tb.Helper()
	ahead := NewReadAhead(aheadChunk, aheadChunks)
	go ahead.Run(tb.Context(), stream)
	return ahead
}

// object returns the full backup that is made of a stream.
func object(tb testing.TB, stream io.Reader) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := compress(&b, running(tb, stream), &Trailer{Version: Version, Lineage: lineage, Revision: 7, Upper: 9, Taken: time.Now().UTC()}, 0, nil); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// read reads an object to its end. A nil error means that all checksums match.
func read(tb testing.TB, source io.Reader) ([]byte, error) {
	tb.Helper()
	r, err := Open("o", source)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestEachWayToReadGivesTheDatabase(t *testing.T) {
	for _, sectors := range []int{1, 2, 8, 255, 256, 257, 1000} {
		stream := streamed(sectors)
		for name, cut := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"by the byte":  iotest.OneByteReader,
			"by the half":  iotest.HalfReader,
			"with the end": iotest.DataErrReader,
		} {
			got, err := read(t, cut(bytes.NewReader(object(t, cut(bytes.NewReader(stream))))))
			if err != nil || !bytes.Equal(got, stream[:sectors*sector]) {
				t.Errorf("%d sectors read %s: %d bytes, err %v", sectors, name, len(got), err)
			}
		}
	}
}

func TestATornStreamMakesNoObject(t *testing.T) {
	whole := streamed(300)
	flipped := slices.Clone(whole)
	flipped[70_000] ^= 4
	broken := errors.New("connection reset")
	for name, stream := range map[string]io.Reader{
		"nothing":                bytes.NewReader(nil),
		"a few bytes":            bytes.NewReader(whole[:20]),
		"the checksum alone":     bytes.NewReader(whole[len(whole)-sha256.Size:]),
		"half":                   bytes.NewReader(whole[:len(whole)/2]),
		"whole pages, no sum":    bytes.NewReader(whole[:len(whole)-sha256.Size]),
		"a byte less":            bytes.NewReader(whole[:len(whole)-1]),
		"a flipped bit":          bytes.NewReader(flipped),
		"a flipped bit in sum":   bytes.NewReader(append(whole[:len(whole)-1:len(whole)-1], whole[len(whole)-1]^1)),
		"an error in the middle": io.MultiReader(bytes.NewReader(whole[:5000]), iotest.ErrReader(broken)),
		"an error at the end":    io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(broken)),
	} {
		if err := compress(io.Discard, running(t, stream), &Trailer{}, 0, nil); !errors.Is(err, ErrTorn) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADamagedObjectIsNamed(t *testing.T) {
	whole := object(t, bytes.NewReader(streamed(300)))
	check := func(what string, at int, content []byte) {
		t.Helper()
		_, err := read(t, bytes.NewReader(content))
		damaged, ok := errors.AsType[*DamagedError](err)
		if !ok || damaged.Object != "o" {
			t.Errorf("%s at %d of %d: %v", what, at, len(whole), err)
		}
	}
	random := rand.New(rand.NewPCG(3, 3))
	for at := range whole {
		// Test every byte of the headers and of the trailer, and some of the content.
		if at > 64 && at < len(whole)-600 && random.IntN(500) > 0 {
			continue
		}
		flipped := slices.Clone(whole)
		flipped[at] ^= 1 << random.IntN(8)
		check("a flipped bit", at, flipped)
		check("cut", at, whole[:at])
	}
	check("something follows", len(whole), append(slices.Clone(whole), 0))
	check("the same follows", len(whole), append(slices.Clone(whole), whole...))
	check("another full before it", 0, append(object(t, bytes.NewReader(streamed(3))), whole...))
	check("a frame that says nothing before it", 0, append([]byte{0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 0}, whole...))
}

// A read that failed says nothing about the object.
func TestAReadThatFailsIsNoDamage(t *testing.T) {
	whole := object(t, bytes.NewReader(streamed(300)))
	broken := errors.New("connection reset")
	for _, at := range []int{0, 1, 10, 1000, len(whole) / 2, len(whole) - 10, len(whole)} {
		_, err := read(t, io.MultiReader(bytes.NewReader(whole[:at]), iotest.ErrReader(broken)))
		if _, damaged := errors.AsType[*DamagedError](err); damaged || !errors.Is(err, broken) {
			t.Errorf("a connection that breaks after %d bytes: %v", at, err)
		}
	}
}

// A full backup of a newer format is not damaged as far as this reader can know, even if its content is encoded
// differently.
func TestFullOfNewerFormatIsNoDamage(t *testing.T) {
	var known, other bytes.Buffer
	newer := Trailer{Version: Version + 1, Lineage: lineage, Revision: 7, Upper: 9, Taken: time.Now().UTC()}
	if err := compress(&known, running(t, bytes.NewReader(streamed(300))), &newer, 0, nil); err != nil {
		t.Fatal(err)
	}
	frame, err := newer.frame()
	if err != nil {
		t.Fatal(err)
	}
	other.Write(bytes.Repeat([]byte("packed in another way "), 50_000))
	other.Write(frame)
	for name, content := range map[string][]byte{"content that is known": known.Bytes(), "content that is not": other.Bytes()} {
		_, err := read(t, bytes.NewReader(content))
		if _, damaged := errors.AsType[*DamagedError](err); damaged || !errors.Is(err, store.ErrNewer) || !strings.HasPrefix(err.Error(), "full backup o ") {
			t.Errorf("%s: got %v, want ErrNewer that names the full", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(object(f, bytes.NewReader(streamed(2))))
	f.Add([]byte{})
	f.Add([]byte(trailerMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := Open("o", bytes.NewReader(content))
		if err != nil {
			return
		}
		defer r.Close()
		if n, err := io.Copy(io.Discard, r); err == nil && n != r.Trailer().Size {
			t.Errorf("read %d bytes, the trailer says %d", n, r.Trailer().Size)
		}
	})
}

// words returns what etcd would send for a database of words.
func words() []byte {
	var db bytes.Buffer
	for i := 0; db.Len() < 512*sector; i++ {
		fmt.Fprintf(&db, "/registry/pods/namespace-%d/name-%x: node-%d is ready since %d;", i%17, i*2654435761, i%5, i*i)
	}
	db.Truncate(512 * sector)
	sum := sha256.Sum256(db.Bytes())
	return append(db.Bytes(), sum[:]...)
}

// TestCompressionLevelsReadBack: each level is read back and the best is the smallest.
func TestCompressionLevelsReadBack(t *testing.T) {
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
