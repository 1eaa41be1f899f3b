package boltdb

import (
	"bytes"
	"io"
)

const (
	// maxDepth of a tree, and maxLookup in bytes. The small keys of etcd that are looked up need one level and one
	// page.
	maxDepth  = 8
	maxLookup = 256 << 10
)

// Lookup finds single keys in a database of size bytes and reads only the pages that lead to them. It returns a
// DamagedError if the database is damaged. Other errors are those of the reader.
type Lookup struct {
	from     io.ReaderAt
	size     int64
	pageSize int64
	root     uint64
}

// NewLookup reads both meta pages and uses the later transaction, as bbolt does. Unlike ReadMeta, it requires both to
// be valid, as they are in a snapshot that etcd sends.
func NewLookup(from io.ReaderAt, size int64) (*Lookup, error) {
	m, err := validMeta(from, size, 0)
	if err != nil {
		return nil, err
	}
	if m.PageSize < minPageSize || m.PageSize > maxPageSize {
		return nil, damaged(BadMeta, "its page size is %d bytes", m.PageSize)
	}
	second, err := validMeta(from, size, int64(m.PageSize))
	if err != nil {
		return nil, err
	}
	if second.TxID > m.TxID {
		m = second
	}
	l := &Lookup{from: from, size: size, pageSize: int64(m.PageSize), root: m.Root}
	if pages := size / l.pageSize; uint64(pages) < m.End {
		return nil, damaged(Truncated, "it should have %d pages of %d bytes, but has %d bytes", m.End, l.pageSize, pages)
	}
	return l, nil
}

func validMeta(from io.ReaderAt, size, offset int64) (Meta, error) {
	if size < offset+HeaderSize+MetaSize {
		return Meta{}, damaged(Truncated, "it has %d bytes", size)
	}
	m, ok, err := metaAt(from, offset)
	if err == nil && !ok {
		err = damaged(BadMeta, "the checksum of the meta page at byte %d is wrong", offset)
	}
	return m, err
}

// Find returns the value of a key in a bucket, or nil if there is none.
func (l *Lookup) Find(bucket, key []byte) ([]byte, error) {
	value, flags, err := l.lookUp(l.root, bucket)
	switch {
	case err != nil || value == nil:
		return nil, err
	case flags&BucketElement == 0 || len(value) < BucketSize:
		return nil, damaged(BadPage, "%s is not a bucket", bucket)
	}
	if root := Order.Uint64(value); root != 0 {
		value, _, err = l.lookUp(root, key)
	} else {
		value, _, err = inLeaf(value[BucketSize:], key)
	}
	return value, err
}

// lookUp descends from a page to the leaf with the key.
func (l *Lookup) lookUp(id uint64, key []byte) (value []byte, flags uint32, err error) {
	for range maxDepth {
		page, err := l.page(id)
		if err != nil {
			return nil, 0, err
		}
		switch kind := Kind(page); kind {
		case Leaf:
			return inLeaf(page, key)
		case Branch:
			if id, err = inBranch(page, key); err != nil {
				return nil, 0, err
			}
		default:
			return nil, 0, damaged(BadPage, "page %d is of kind %#x", id, kind)
		}
	}
	return nil, 0, damaged(BadPage, "its tree is deeper than %d", maxDepth)
}

// page reads a page and its overflow.
func (l *Lookup) page(id uint64) ([]byte, error) {
	if id < 2 || id >= uint64(l.size/l.pageSize) {
		return nil, damaged(BadPage, "page %d is outside of it", id)
	}
	page := make([]byte, l.pageSize)
	if _, err := l.from.ReadAt(page, int64(id)*l.pageSize); err != nil {
		return nil, err
	}
	long := int64(Pages(page)) * l.pageSize
	switch {
	case ID(page) != id:
		return nil, damaged(BadPage, "page %d has the number %d in its header", id, ID(page))
	case long > maxLookup || int64(id)*l.pageSize+long > l.size:
		return nil, damaged(BadPage, "page %d claims to have %d bytes", id, long)
	case long == l.pageSize:
		return page, nil
	}
	page = make([]byte, long)
	_, err := l.from.ReadAt(page, int64(id)*l.pageSize)
	return page, err
}

// inLeaf finds a key among the elements of a leaf.
func inLeaf(page, key []byte) (value []byte, flags uint32, err error) {
	if len(page) < HeaderSize {
		return nil, 0, damaged(BadPage, "an inline page has %d bytes", len(page))
	}
	for i := range Count(page) {
		at := HeaderSize + i*ElementSize
		if at+ElementSize > len(page) {
			return nil, 0, damaged(BadPage, "a leaf is shorter than its elements")
		}
		own, value, ok := Entry(page[at:], true)
		if !ok {
			return nil, 0, damaged(BadPage, "an element extends beyond its leaf")
		}
		if bytes.Equal(own, key) {
			return value, Order.Uint32(page[at:]), nil
		}
	}
	return nil, 0, nil
}

// inBranch finds the page below which a key is: that of the last element whose key is not greater, or else the first
// one.
func inBranch(page, key []byte) (id uint64, err error) {
	for i := range Count(page) {
		at := HeaderSize + i*ElementSize
		if at+ElementSize > len(page) {
			return 0, damaged(BadPage, "a branch is shorter than its elements")
		}
		low, _, ok := Entry(page[at:], false)
		if !ok {
			return 0, damaged(BadPage, "an element extends beyond its branch")
		}
		if i > 0 && bytes.Compare(low, key) > 0 {
			break
		}
		id = Child(page[at:])
	}
	return id, nil
}
