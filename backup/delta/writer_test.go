package delta

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// start is a time in milliseconds, the resolution of the format.
var start = time.UnixMilli(1_790_000_000_000)

// history makes records of revisions with one or many changes, puts and deletions, and values of all sizes.
func history(seed uint64, from, revisions int64, largest int) []Record {
	random := rand.New(rand.NewPCG(seed, 1))
	var all []Record
	for main := from; main < from+revisions; main++ {
		at := start.Add(time.Duration(main/3) * time.Second)
		for sub := range int64(1 + random.IntN(3)*random.IntN(3)) {
			e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: fmt.Appendf(nil, "/key/%d", random.IntN(100)), ModRevision: main}}
			if random.IntN(4) == 0 {
				e.Type = mvccpb.Event_DELETE
			} else {
				e.Kv.Value, e.Kv.Version, e.Kv.CreateRevision = make([]byte, random.IntN(largest)), 1, main
				for i := range e.Kv.Value {
					e.Kv.Value[i] = byte(random.IntN(16))
				}
				e.Kv.Lease = int64(random.IntN(2)) * 77
			}
			all = append(all, Record{
				Key:   AppendKey(nil, main, sub, e.Type == mvccpb.Event_DELETE),
				Value: appendValue(nil, e), Revision: main, At: at,
			})
		}
	}
	return all
}

// reported is what a checkpoint reports next to the hash.
func reported(keys, leases int64) Alongside {
	return Alongside{Keys: &keys, Leases: &leases, Auth: &Auth{Enabled: true, Revision: 9}}
}

func write(tb testing.TB, all []Record, l Leases, c *Checkpoint) *FinishedDelta {
	tb.Helper()
	w, err := NewWriter(Header{Lineage: "00000001-abc", ClusterID: 0xfedcba9876543210, MemberID: 7, Before: Digest{1}})
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range all {
		if err := w.Append(r.Key, r.Value, r.At); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := w.Finish(start.Add(time.Hour), l, c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func content(tb testing.TB, s *FinishedDelta) []byte {
	tb.Helper()
	b, err := io.ReadAll(s.Reader())
	if err != nil {
		tb.Fatal(err)
	}
	if int64(len(b)) != s.Size {
		tb.Fatalf("%d bytes, said to be %d", len(b), s.Size)
	}
	return b
}

// read reads all that can be read.
func read(source io.Reader, want Expected) (all []Record, r *Reader, err error) {
	r, err = NewReader(source, want)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for {
		batch, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, r, nil
		}
		if err != nil {
			return all, r, err
		}
		all = append(all, batch...)
	}
}

func digestOf(all []Record, revision int64) Digest {
	var d Digester
	for _, r := range all {
		if r.Revision == revision {
			d.Add(r.Key, r.Value)
		}
	}
	return d.Sum()
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	some := Leases{Records: []Lease{{ID: 77, TTL: 60, Remaining: 59, At: start}, {ID: -5, At: start}}, Alive: []int64{77, 78}, Known: true}
	for name, c := range map[string]struct {
		revisions  int64
		largest    int
		leases     Leases
		checkpoint *Checkpoint
	}{
		"one revision":      {revisions: 1, largest: 10},
		"a few with leases": {revisions: 30, largest: 100, leases: some},
		"none alive":        {revisions: 3, largest: 10, leases: Leases{Known: true}},
		"many blocks": {revisions: 5000, largest: 4000, leases: some,
			checkpoint: &Checkpoint{Revision: 5100, CompactRevision: 90, HashKV: 0xdeadbeef, MemberID: 7, Alongside: reported(0, 12)}},
		"records above blocks": {revisions: 6, largest: 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			all := history(1, 100, c.revisions, c.largest)
			s := write(t, all, c.leases, c.checkpoint)
			last := 99 + c.revisions
			got, r, err := read(s.Reader(), Expected{Object: "x", Lineage: "00000001-abc", From: 100, To: last})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(all, got, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Fatal(diff)
			}
			want := Header{
				Version: 1, Lineage: "00000001-abc", ClusterID: 0xfedcba9876543210, MemberID: 7, From: 100, To: last, Before: Digest{1},
				Last: digestOf(all, last), Opened: start.Add(33 * time.Second), Closed: start.Add(time.Hour),
				Revisions: c.revisions, Events: int64(len(all)), Blocks: r.Header().Blocks,
			}
			if diff := cmp.Diff(want, r.Header()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.checkpoint, r.Checkpoint()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.leases, r.Leases()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAWriterTakesWholeRevisionsInOrder(t *testing.T) {
	key := func(main, sub int64) []byte { return AppendKey(nil, main, sub, false) }
	for name, keys := range map[string][][]byte{
		"a hole":                      {key(5, 0), key(7, 0)},
		"a revision again":            {key(5, 0), key(5, 0)},
		"back":                        {key(5, 0), key(4, 0)},
		"a sub-revision is left out":  {key(5, 0), key(5, 2)},
		"a revision without its head": {key(5, 1)},
		"no revision":                 {key(0, 0)},
		"no key of the database":      {[]byte("/registry")},
		"another mark":                {append(key(5, 0), 'x')},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewWriter(Header{})
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range keys {
				if err = w.Append(k, []byte("v"), start); err != nil && i < len(keys)-1 {
					t.Fatal(err)
				}
			}
			if err == nil {
				t.Error("it was taken")
			}
		})
	}
}

// Whichever bit is flipped, the reader returns no record that was not written and reports an error.
func TestEveryFlippedBitIsFound(t *testing.T) {
	all := history(2, 9, 3, 30)
	whole := content(t, write(t, all, Leases{Records: []Lease{{ID: 77, TTL: 5, At: start}}},
		&Checkpoint{Revision: 20, CompactRevision: 3, HashKV: 9, MemberID: 7}))
	for i := range whole {
		for bit := range 8 {
			broken := bytes.Clone(whole)
			broken[i] ^= 1 << bit
			got, _, err := read(bytes.NewReader(broken), Expected{Object: "x"})
			damaged, ok := errors.AsType[*DamagedError](err)
			if !ok || damaged.Object != "x" || damaged.Offset > int64(i) || damaged.Reason == "" {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
			if len(got) > 0 && !cmp.Equal(all[:len(got)], got) {
				t.Fatalf("bit %d of byte %d: records that were not written", bit, i)
			}
		}
	}
}

func TestATruncatedDeltaIsFoundAtEveryLength(t *testing.T) {
	whole := content(t, write(t, history(3, 9, 12, 60), Leases{Known: true}, nil))
	for n := range whole {
		_, _, err := read(bytes.NewReader(whole[:n]), Expected{Object: "x"})
		if damaged, ok := errors.AsType[*DamagedError](err); !ok || damaged.Offset > int64(n) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	_, _, err := read(bytes.NewReader(append(bytes.Clone(whole), 0)), Expected{})
	if damaged, ok := errors.AsType[*DamagedError](err); !ok || damaged.Offset != int64(len(whole)) {
		t.Errorf("with a byte behind its end: %v", err)
	}
}

func TestADeltaUnderAnotherNameIsFound(t *testing.T) {
	s := write(t, history(4, 9, 12, 60), Leases{}, nil)
	for name, want := range map[string]Expected{
		"another lineage": {Lineage: "00000002-abc"},
		"another from":    {From: 8, To: 20},
		"another to":      {From: 9, To: 21},
	} {
		if _, _, err := read(s.Reader(), want); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// An error of the source is not reported as damage of the content.
func TestABrokenConnectionIsNoDamage(t *testing.T) {
	whole := content(t, write(t, history(5, 9, 12, 60), Leases{}, nil))
	cut := errors.New("connection reset")
	for _, n := range []int{0, 5, 100, len(whole) - 10, len(whole)} {
		source := io.MultiReader(bytes.NewReader(whole[:n]), failing{cut})
		_, _, err := read(source, Expected{})
		if _, damaged := errors.AsType[*DamagedError](err); damaged || !errors.Is(err, cut) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A delta backup can be read from any position, in pieces and completely.
func TestAFinishedDeltaReadsAsOneAnywhere(t *testing.T) {
	s := &FinishedDelta{parts: [][]byte{[]byte("one"), {}, []byte("two"), []byte("three")}, Size: 11}
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

// TestCompressionLevelsReadBack: each level is read back and the best is the smallest.
func TestCompressionLevelsReadBack(t *testing.T) {
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

// events counts the events of a delta backup, which it reads to its end.
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
