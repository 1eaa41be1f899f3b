package boltdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// page is a branch or leaf page with all its overflow.
type page struct {
	id    uint64
	raw   []byte
	end   uint64 // pages of the backend
	leaf  bool
	count int
}

// check checks every element of the page and appends the pages to which it refers.
func (p page) check(r ref, below []ref) ([]ref, error) {
	if HeaderSize+p.count*ElementSize > len(p.raw) {
		return nil, damaged(BadPage, "page %d claims to have %d elements", p.id, p.count)
	}
	if !p.leaf && p.count == 0 {
		return nil, damaged(BadPage, "branch page %d is empty", p.id)
	}
	var former []byte
	for i := range p.count {
		element := p.raw[HeaderSize+i*ElementSize:]
		key, value, ok := Entry(element, p.leaf)
		if !ok {
			return nil, damaged(BadPage, "element %d of page %d extends beyond it", i, p.id)
		}
		if i > 0 && bytes.Compare(former, key) >= 0 {
			return nil, damaged(BadPage, "element %d of page %d is out of order", i, p.id)
		}
		if f := first8(key); f < r.low || f > r.high {
			return nil, damaged(BadPage, "element %d of page %d is outside of the key range of its parent", i, p.id)
		}
		former = key
		var err error
		switch {
		case !p.leaf:
			below, err = p.child(i, element, key, r, below)
		case Order.Uint32(element)&BucketElement != 0:
			below, err = p.bucket(key, value, below)
		case r.values && !wellFormed(value):
			err = damaged(BadPage, "the value of element %d of page %d cannot be decoded", i, p.id)
		}
		if err != nil {
			return nil, err
		}
	}
	return below, nil
}

// child appends the page of an element of a branch. Its keys end before the key of the next element.
func (p page) child(i int, element, key []byte, r ref, below []ref) ([]ref, error) {
	id := Child(element)
	if id < 2 || id >= p.end {
		return nil, damaged(BadPage, "element %d of page %d refers to page %d of %d", i, p.id, id, p.end)
	}
	high := r.high
	if i+1 < p.count {
		next, _, ok := Entry(p.raw[HeaderSize+(i+1)*ElementSize:], false)
		if !ok {
			return nil, damaged(BadPage, "element %d of page %d extends beyond it", i+1, p.id)
		}
		high = first8(next)
	}
	return append(below, ref{page: uint32(id), low: first8(key), high: high, values: r.values}), nil
}

// bucket appends the root page of a bucket, or checks the page within the element.
func (p page) bucket(name, value []byte, below []ref) ([]ref, error) {
	if len(value) < BucketSize {
		return nil, damaged(BadPage, "bucket %q in page %d has no headerer", name, p.id)
	}
	values := string(name) == keyBucket
	root := Order.Uint64(value)
	if root == 0 {
		inline := page{id: p.id, raw: value[BucketSize:], leaf: true}
		if len(inline.raw) < HeaderSize {
			return nil, damaged(BadPage, "bucket %q in page %d has no page", name, p.id)
		}
		inline.count = Count(inline.raw)
		return inline.check(ref{high: math.MaxUint64, values: values}, below)
	}
	if root < 2 || root >= p.end {
		return nil, damaged(BadPage, "bucket %q in page %d refers to page %d of %d", name, p.id, root, p.end)
	}
	return append(below, ref{page: uint32(root), high: math.MaxUint64, values: values}), nil
}

// first8 returns the first 8 bytes of a key as a number. A key that sorts later has no smaller number.
func first8(key []byte) uint64 {
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// wellFormed reports whether value is a sequence of protobuf fields, such as mvccpb.KeyValue. etcd decodes each value
// when it starts.
func wellFormed(value []byte) bool {
	for len(value) > 0 {
		_, _, n := protowire.ConsumeField(value)
		if n < 0 {
			return false
		}
		value = value[n:]
	}
	return true
}

const minPageSize, maxPageSize = 1 << 10, 1 << 24 // what bbolt itself tries

// ReadMeta returns the valid meta page of the higher transaction, as bbolt does. A crash may leave one invalid meta
// page; the other one then describes the transaction before. The file of size bytes must have all pages that the meta
// page counts.
func ReadMeta(f io.ReaderAt, size int64) (Meta, error) {
	var best Meta
	offsets := []int64{0}
	for s := int64(minPageSize); s <= maxPageSize && s < size; s *= 2 {
		offsets = append(offsets, s)
	}
	for _, off := range offsets {
		m, ok, err := metaAt(f, off)
		if err != nil {
			return best, err
		}
		if ok && (off == 0 || uint64(off) == m.PageSize) && (best.PageSize == 0 || m.TxID > best.TxID) {
			best = m
		}
	}
	switch {
	case size == 0:
		return best, damaged(Truncated, "the backend is empty")
	case best.PageSize == 0:
		return best, damaged(BadMeta, "neither meta page of the backend is valid")
	case uint64(size)/best.PageSize < best.End:
		return best, damaged(Truncated, "the backend has %d bytes, but %d pages of %d", size, best.End, best.PageSize)
	case best.Root < 2 || best.Root >= best.End:
		return best, damaged(BadMeta, "the root page %d is outside of the backend's %d pages", best.Root, best.End)
	}
	return best, nil
}

func metaAt(f io.ReaderAt, off int64) (Meta, bool, error) {
	var raw [HeaderSize + MetaSize]byte
	if _, err := f.ReadAt(raw[:], off); errors.Is(err, io.EOF) {
		return Meta{}, false, nil
	} else if err != nil {
		return Meta{}, false, fmt.Errorf("read meta page: %w", err)
	}
	meta, ok := ParseMeta(raw[:])
	return meta, ok && meta.PageSize >= minPageSize && meta.PageSize <= maxPageSize, nil
}
