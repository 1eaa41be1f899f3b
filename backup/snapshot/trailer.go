package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"time"

	"github.com/etcd-druid/druid/backup/boltpage"
	"github.com/etcd-druid/druid/backup/store"
)

// Version of the layout that is written, and the newest that is read.
const Version = 1

// The trailer is a skippable frame of zstd: any decoder passes over it. It ends in what is needed to find it from the
// object's end: CRC-32C of the JSON, length of the JSON, and these eight bytes.
const (
	frameMagic = 0x184D2A5D
	frameHead  = 8       // magic and length
	footer     = 4 + 4   // checksum and length of the JSON
	maxTrailer = 4 << 10 // of the whole frame: its fields are a few hundred bytes

	trailerMagic = "druidful"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID of a cluster or a member, in lower-case hexadecimal wherever it is written.
type ID uint64

// MarshalText renders the ID as etcd prints it.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 16), nil }

// UnmarshalText parses what MarshalText made.
func (id *ID) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	*id = ID(v)
	return err
}

// Trailer is what an object says of itself.
type Trailer struct {
	Version int    `json:"version"`
	Lineage string `json:"lineage"`
	// ClusterID and MemberID of who sent it.
	ClusterID ID `json:"clusterID"`
	MemberID  ID `json:"memberID"`
	// EtcdVersion of that member, major.minor.patch. StorageVersion of the database, empty before etcd 3.6, and in the first
	// seconds of a cluster.
	EtcdVersion    string `json:"etcdVersion"`
	StorageVersion string `json:"storageVersion,omitempty"`
	// Revision is proven to be in the database; Upper was reached by the member after the database was fixed: what is
	// in it lies between.
	Revision int64 `json:"revision"`
	Upper    int64 `json:"upper"`
	// Size in bytes and SHA256 of the database, without the checksum that etcd appends, which is the same.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Stored is the size in bytes of the object before the trailer, and CRC32C their checksum: the compressor has one of
	// what it compressed, but none of its own headers.
	Stored int64  `json:"stored"`
	CRC32C uint32 `json:"crc32c"`
	// Started is when the revision was read, Taken when the database was fixed, by the agent's clock.
	Started time.Time `json:"started"`
	Taken   time.Time `json:"taken"`
}

// frame encodes t.
func (t Trailer) frame() ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode trailer: %w", err)
	}
	length := len(text) + footer + len(trailerMagic)
	if frameHead+length > maxTrailer {
		return nil, fmt.Errorf("encode trailer: %d bytes, want at most %d", length, maxTrailer)
	}
	frame := binary.LittleEndian.AppendUint32(nil, frameMagic)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(length))
	frame = append(frame, text...)
	frame = binary.LittleEndian.AppendUint32(frame, crc32.Checksum(text, castagnoli))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(text)))
	return append(frame, trailerMagic...), nil
}

// parseTrailer finds the trailer at the end of an object of size bytes, of which tail are the last ones.
func parseTrailer(tail []byte, size int64) (Trailer, error) {
	var t Trailer
	rest, ok := bytes.CutSuffix(tail, []byte(trailerMagic))
	if !ok || len(rest) < frameHead+footer {
		return t, errors.New("it does not end in a trailer: it was cut off, or is no full of ours")
	}
	rest, length := rest[:len(rest)-4], int64(binary.LittleEndian.Uint32(rest[len(rest)-4:]))
	rest, sum := rest[:len(rest)-4], binary.LittleEndian.Uint32(rest[len(rest)-4:])
	if length > int64(len(rest)-frameHead) {
		return t, fmt.Errorf("the trailer claims %d bytes", length)
	}
	head, text := rest[:int64(len(rest))-length], rest[int64(len(rest))-length:]
	head = head[len(head)-frameHead:]
	if crc32.Checksum(text, castagnoli) != sum {
		return t, errors.New("the trailer's checksum is wrong")
	}
	if binary.LittleEndian.Uint32(head) != frameMagic || int64(binary.LittleEndian.Uint32(head[4:])) != length+footer+int64(len(trailerMagic)) {
		return t, errors.New("the trailer's frame is not one")
	}
	var format struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &format); err == nil && format.Version > Version {
		return t, fmt.Errorf("has version %d of the format, and this program reads up to %d: %w", format.Version, Version, store.ErrNewer)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("the trailer is no JSON of ours: %w", err)
	}
	if stored := size - frameHead - length - footer - int64(len(trailerMagic)); t.Stored != stored {
		return t, fmt.Errorf("%d bytes stand before the trailer, it says %d", stored, t.Stored)
	}
	return t, nil
}

// unusable is what an error of parseTrailer says of the object.
func unusable(key string, err error) error {
	if errors.Is(err, store.ErrNewer) {
		return fmt.Errorf("full %s %w", key, err)
	}
	return &DamagedError{Object: key, Reason: "trailer", Err: err}
}

// ReadTrailer reads only the end of an object of size bytes.
func ReadTrailer(ctx context.Context, s store.Store, key string, size int64) (Trailer, error) {
	offset := max(size-maxTrailer, 0)
	r, err := s.Get(ctx, key, offset, maxTrailer)
	if err != nil {
		return Trailer{}, fmt.Errorf("read trailer of %s: %w", key, err)
	}
	tail, err := io.ReadAll(io.LimitReader(r, maxTrailer))
	if err := errors.Join(err, r.Close()); err != nil {
		return Trailer{}, fmt.Errorf("read trailer of %s: %w", key, err)
	}
	t, err := parseTrailer(tail, offset+int64(len(tail)))
	if err != nil {
		return t, unusable(key, err)
	}
	return t, nil
}

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
