package snapshot

import (
	"bytes"
	"fmt"
	"io"

	"github.com/etcd-druid/druid/backup/boltpage"
)

const (
	minPageSize, maxPageSize = 1 << 10, 64 << 10 // those that bbolt makes: the pages of the machine
	// maxDepth of a tree, and maxPage in bytes: etcd's few small keys need one level and one page.
	maxDepth = 8
	maxPage  = 256 << 10
)

// pageError says that a page is not what bbolt writes.
type pageError struct{ reason string }

func (e *pageError) Error() string { return e.reason }

func badPage(format string, a ...any) error { return &pageError{fmt.Sprintf(format, a...)} }

// pages finds single keys in a database without reading more of it than the pages on the way.
type pages struct {
	from     io.ReaderAt
	size     int64
	pageSize int64
	root     uint64
}

// begin reads the two meta pages: of the later transaction, as bbolt does. In what etcd sends both report the same one.
func (p *pages) begin() error {
	m, err := p.meta(0)
	if err != nil {
		return err
	}
	if m.PageSize < minPageSize || m.PageSize > maxPageSize {
		return badPage("its pages have %d bytes", m.PageSize)
	}
	p.pageSize = int64(m.PageSize)
	second, err := p.meta(p.pageSize)
	if err != nil {
		return err
	}
	if second.TxID > m.TxID {
		m = second
	}
	p.root = m.Root
	if uint64(p.size/p.pageSize) < m.End {
		return badPage("it should have %d pages of %d bytes, and has %d", m.End, p.pageSize, p.size/p.pageSize)
	}
	return nil
}

// meta reads the meta page at offset.
func (p *pages) meta(offset int64) (boltpage.Meta, error) {
	raw := make([]byte, boltpage.HeaderSize+boltpage.MetaSize)
	if p.size < offset+int64(len(raw)) {
		return boltpage.Meta{}, badPage("it has %d bytes", p.size)
	}
	if _, err := p.from.ReadAt(raw, offset); err != nil {
		return boltpage.Meta{}, err
	}
	m, ok := boltpage.ParseMeta(raw)
	if !ok {
		return m, badPage("the checksum of the meta page at byte %d is wrong", offset)
	}
	return m, nil
}

// find the value of a key in a bucket, nil where there is none.
func (p *pages) find(bucket, key []byte) ([]byte, error) {
	value, flags, err := p.lookUp(p.root, bucket)
	switch {
	case err != nil || value == nil:
		return nil, err
	case flags&boltpage.BucketElement == 0 || len(value) < boltpage.BucketSize:
		return nil, badPage("%s is no bucket", bucket)
	}
	if root := boltpage.Order.Uint64(value); root != 0 {
		value, _, err = p.lookUp(root, key)
	} else {
		value, _, err = inLeaf(value[boltpage.BucketSize:], key)
	}
	return value, err
}

// lookUp goes down from a page to the leaf that has the key.
func (p *pages) lookUp(id uint64, key []byte) (value []byte, flags uint32, err error) {
	for range maxDepth {
		page, err := p.page(id)
		if err != nil {
			return nil, 0, err
		}
		switch kind := boltpage.Kind(page); kind {
		case boltpage.Leaf:
			return inLeaf(page, key)
		case boltpage.Branch:
			if id, err = inBranch(page, key); err != nil {
				return nil, 0, err
			}
		default:
			return nil, 0, badPage("page %d is of kind %#x", id, kind)
		}
	}
	return nil, 0, badPage("its tree is deeper than %d", maxDepth)
}

// page reads a page and what overflows it.
func (p *pages) page(id uint64) ([]byte, error) {
	if id < 2 || id >= uint64(p.size/p.pageSize) {
		return nil, badPage("page %d is outside of it", id)
	}
	page := make([]byte, p.pageSize)
	if _, err := p.from.ReadAt(page, int64(id)*p.pageSize); err != nil {
		return nil, err
	}
	long := int64(boltpage.Pages(page)) * p.pageSize
	switch {
	case boltpage.ID(page) != id:
		return nil, badPage("page %d says to be page %d", id, boltpage.ID(page))
	case long > maxPage || int64(id)*p.pageSize+long > p.size:
		return nil, badPage("page %d claims %d bytes", id, long)
	case long == p.pageSize:
		return page, nil
	}
	page = make([]byte, long)
	_, err := p.from.ReadAt(page, int64(id)*p.pageSize)
	return page, err
}

// inLeaf finds a key among the elements of a leaf.
func inLeaf(page, key []byte) (value []byte, flags uint32, err error) {
	if len(page) < boltpage.HeaderSize {
		return nil, 0, badPage("an inline page has %d bytes", len(page))
	}
	for i := range boltpage.Count(page) {
		at := boltpage.HeaderSize + i*boltpage.ElementSize
		if at+boltpage.ElementSize > len(page) {
			return nil, 0, badPage("a leaf ends before its elements")
		}
		own, value, ok := boltpage.Entry(page[at:], true)
		if !ok {
			return nil, 0, badPage("an element is outside of its leaf")
		}
		if bytes.Equal(own, key) {
			return value, boltpage.Order.Uint32(page[at:]), nil
		}
	}
	return nil, 0, nil
}

// inBranch finds the page below which a key is: that of the last element whose key is not beyond it, else the first.
func inBranch(page, key []byte) (id uint64, err error) {
	for i := range boltpage.Count(page) {
		at := boltpage.HeaderSize + i*boltpage.ElementSize
		if at+boltpage.ElementSize > len(page) {
			return 0, badPage("a branch ends before its elements")
		}
		low, _, ok := boltpage.Entry(page[at:], false)
		if !ok {
			return 0, badPage("an element is outside of its branch")
		}
		if i > 0 && bytes.Compare(low, key) > 0 {
			break
		}
		id = boltpage.Child(page[at:])
	}
	return id, nil
}
