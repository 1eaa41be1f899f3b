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

	"github.com/etcd-druid/druid/backup/store"
)

// Version of the layout that is written, and the newest that can be read.
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

// ID of a cluster or a member. Its text is lower-case hexadecimal.
type ID uint64

// MarshalText renders the ID as etcd prints it.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 16), nil }

// UnmarshalText parses the output of MarshalText.
func (id *ID) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 16, 64)
	*id = ID(v)
	return err
}

// Trailer describes the object that it ends.
type Trailer struct {
	Version int    `json:"version"`
	Lineage string `json:"lineage"`
	// ClusterID and MemberID of the member that sent the database.
	ClusterID ID `json:"clusterID"`
	MemberID  ID `json:"memberID"`
	// EtcdVersion of that member, major.minor.patch. StorageVersion of the database is empty before etcd 3.6 and in
	// the first seconds of a cluster.
	EtcdVersion    string `json:"etcdVersion"`
	StorageVersion string `json:"storageVersion,omitempty"`
	// Revision is certainly in the database. The member reached Upper after the database was fixed, so its last
	// revision is between the two.
	Revision int64 `json:"revision"`
	Upper    int64 `json:"upper"`
	// Size in bytes and SHA256 of the database, without the checksum that etcd appends, which is the same.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Stored is the size of the object before the trailer in bytes, and CRC32C its checksum. The checksum of the
	// compressor does not cover its own headers.
	Stored int64  `json:"stored"`
	CRC32C uint32 `json:"crc32c"`
	// Started is when the revision was read, and Taken when the database was fixed, by the clock of the agent.
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

// parseTrailer finds the trailer of an object of size bytes in tail, its last bytes.
func parseTrailer(tail []byte, size int64) (Trailer, error) {
	var t Trailer
	rest, ok := bytes.CutSuffix(tail, []byte(trailerMagic))
	if !ok || len(rest) < frameHead+footer {
		return t, errors.New("it has no trailer at its end: it is incomplete, or not a full backup of druid")
	}
	rest, length := rest[:len(rest)-4], int64(binary.LittleEndian.Uint32(rest[len(rest)-4:]))
	rest, sum := rest[:len(rest)-4], binary.LittleEndian.Uint32(rest[len(rest)-4:])
	if length > int64(len(rest)-frameHead) {
		return t, fmt.Errorf("the trailer claims to have %d bytes", length)
	}
	head, text := rest[:int64(len(rest))-length], rest[int64(len(rest))-length:]
	head = head[len(head)-frameHead:]
	if crc32.Checksum(text, castagnoli) != sum {
		return t, errors.New("the checksum of the trailer does not match")
	}
	if binary.LittleEndian.Uint32(head) != frameMagic || int64(binary.LittleEndian.Uint32(head[4:])) != length+footer+int64(len(trailerMagic)) {
		return t, errors.New("the trailer is not a valid frame")
	}
	var format struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &format); err == nil && format.Version > Version {
		return t, fmt.Errorf("has format version %d, but this program reads versions up to %d: %w", format.Version, Version, store.ErrNewer)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("the trailer is not valid JSON: %w", err)
	}
	if stored := size - frameHead - length - footer - int64(len(trailerMagic)); t.Stored != stored {
		return t, fmt.Errorf("%d bytes precede the trailer, but it says %d", stored, t.Stored)
	}
	return t, nil
}

// unusable turns an error of parseTrailer into one about the object.
func unusable(key string, err error) error {
	if errors.Is(err, store.ErrNewer) {
		return fmt.Errorf("full backup %s %w", key, err)
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
