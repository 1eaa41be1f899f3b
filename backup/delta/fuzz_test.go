package delta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
)

// FuzzReader gives arbitrary input to a Reader. Because random changes fail at the checksums, each input is also read
// with all checksums corrected.
func FuzzReader(f *testing.F) {
	whole := content(f, write(f, history(6, 9, 12, 60), Leases{Records: []Lease{{ID: 77, TTL: 5, At: start}}, Known: true},
		&Checkpoint{Revision: 20, CompactRevision: 3, HashKV: 9, MemberID: 7, Alongside: reported(5, 2)}))
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(append(bytes.Clone(whole), whole...))
	f.Add(content(f, write(f, history(7, 1, 1, 2), Leases{}, nil)))
	f.Add([]byte{})
	lies := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(lies[4:], 1<<31)
	f.Add(lies)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, source := range [][]byte{b, repaired(b)} {
			all, r, err := read(bytes.NewReader(source), Expected{})
			if err == nil && int64(len(all)) != r.Header().Events {
				t.Errorf("%d records of %d were called whole", len(all), r.Header().Events)
			}
			// With correct checksums, another format version is one of a newer druid.
			if _, ok := errors.AsType[*DamagedError](err); err != nil && !ok && !errors.Is(err, store.ErrNewer) {
				t.Errorf("the source did not fail, and yet: %v", err)
			}
		}
	})
}

// repaired corrects the checksums of all frames, as far as frames can be found.
func repaired(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; at+frameHeader+magicLength <= len(b); {
		length := int(binary.LittleEndian.Uint32(b[at+4:]))
		if length < magicLength || length > len(b)-at-frameHeader {
			break
		}
		content := b[at+frameHeader:][:length]
		at += frameHeader + length
		switch string(content[:magicLength]) {
		case magicFooter:
			if length >= footerFixed {
				sum := sha256.Sum256(b[:at-sha256.Size])
				copy(b[at-sha256.Size:], sum[:])
			}
		case magicBlock:
			if length != blockFixed {
				return b
			}
			n := int(binary.LittleEndian.Uint32(content[magicLength+4:]))
			if n <= len(b)-at {
				binary.LittleEndian.PutUint32(content[magicLength+32:], checksum(b[at:at+n]))
				at += n
			}
			binary.LittleEndian.PutUint32(content[blockFixed-4:], checksum(content[:blockFixed-4]))
		default:
			if length >= headerFixed {
				binary.LittleEndian.PutUint32(content[length-4:], checksum(content[:length-4]))
			}
		}
	}
	return b
}

// FuzzBlock parses blocks of records as if their checksums matched.
func FuzzBlock(f *testing.F) {
	for seed := range uint64(4) {
		var plain []byte
		w, err := NewWriter(Header{})
		if err != nil {
			f.Fatal(err)
		}
		for _, r := range history(seed, 9, 12, 60) {
			if err := w.Append(r.Key, r.Value, r.At); err != nil {
				f.Fatal(err)
			}
		}
		plain = bytes.Clone(w.plain)
		f.Add(plain, w.head.records, int64(9), int64(20))
	}
	f.Add([]byte{0}, uint32(1<<31), int64(1), int64(1<<62))
	f.Fuzz(func(t *testing.T, plain []byte, n uint32, from, to int64) {
		c := cursor{header: &Header{From: from, To: to}}
		batch, err := c.block(blockHeader{kind: records, records: n, first: from, last: to}, plain)
		if err != nil {
			return
		}
		for i, r := range batch {
			if r.Revision < from || r.Revision > to || i > 0 && r.At.Before(batch[i-1].At) {
				t.Errorf("record %d is out of order: %+v", i, r)
			}
		}
	})
}

func TestAReaderThatWasClosedReadsNoMore(t *testing.T) {
	s := write(t, history(6, 9, 12, 60), Leases{}, nil)
	r, err := NewReader(s.Reader(), Expected{})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := r.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a closed reader returned %v", err)
	}
}
