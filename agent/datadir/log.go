package datadir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	etcdlayout "go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// raftLog is the result of one pass over all records of the log. Only one record at a time is in memory.
type raftLog struct {
	firstFile uint64 // the index in the name of the oldest file
	metadata  []byte
	ids       etcdserverpb.Metadata
	state     raftpb.HardState
	snapshots []Position // in the order of the records
	entries   bool
	last      Position
	// gaplessFrom is the lowest index from which on the log has every entry up to last. Entries may jump where a snapshot of the
	// leader replaced what this member lacked.
	gaplessFrom uint64
	tornTail    bool
	// end is the offset after the last good record in its file, and sum the checksum there.
	end int64
	sum uint32
	// shape says which of the entries are replaced by later records. If visit is set, it gets each entry that is not.
	shape shape
	visit func(*raftpb.Entry) error
}

// walFile is one file of the log.
type walFile struct {
	name       string
	seq, index uint64
}

func walFiles(dir string) ([]walFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []walFile
	for _, e := range entries {
		f := walFile{name: e.Name()}
		// Files that etcd prepares end in .tmp, and files that it set aside end in .broken.
		if n, err := fmt.Sscanf(f.name, "%016x-%016x.wal", &f.seq, &f.index); err != nil || n != 2 || filepath.Ext(f.name) != ".wal" {
			continue
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b walFile) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	if len(files) == 0 {
		return nil, damaged(MissingWALFile, "%s contains no log file", filepath.Base(dir))
	}
	for i := 1; i < len(files); i++ {
		if files[i].seq != files[i-1].seq+1 {
			return nil, damaged(MissingWALFile, "log files are missing between %s and %s", files[i-1].name, files[i].name)
		}
	}
	return files, nil
}

// walReader records whether it was read. The decoder finishes each file before it reads the next one.
type walReader struct {
	*os.File
	info    fs.FileInfo
	reached bool
}

func (r *walReader) Read(p []byte) (int, error) { r.reached = true; return r.File.Read(p) }

func (r *walReader) FileInfo() (fs.FileInfo, error) { return r.info, nil }

// readLog reads the log with etcd's decoder, which verifies the checksum of each record and across files.
func readLog(ctx context.Context, dir string) (*raftLog, error) {
	l := &raftLog{}
	return l, l.read(ctx, dir)
}

func (l *raftLog) read(ctx context.Context, dir string) error {
	files, err := walFiles(dir)
	if err != nil {
		return err
	}
	l.firstFile = files[0].index
	readers := make([]*walReader, len(files))
	decoded := make([]fileutil.FileReader, len(files))
	for i, f := range files {
		file, err := os.Open(filepath.Join(dir, f.name))
		if err != nil {
			return err
		}
		defer file.Close() // only read
		info, err := file.Stat()
		if err != nil {
			return err
		}
		readers[i] = &walReader{File: file, info: info}
		decoded[i] = readers[i]
	}
	err = l.decode(ctx, wal.NewDecoder(decoded...))
	switch reached := slices.IndexFunc(readers, func(r *walReader) bool { return !r.reached }); {
	case err == nil && l.metadata == nil:
		err = damaged(BadWALRecord, "%s contains no metadata", files[0].name)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
	case reached == -1:
		l.tornTail = err != nil
		err = l.checkEnd(readers[len(readers)-1].File)
	default:
		err = damaged(TornWAL, "%s ends in the middle of a record, but %s follows it", files[reached-1].name, files[reached].name)
	}
	return err
}

// checkEnd looks for damage where the log seems to end, in the last file.
func (l *raftLog) checkEnd(f *os.File) error {
	reason, err := tornByDamage(f, l.end, l.sum)
	if err != nil || reason == "" {
		return err
	}
	l.tornTail = false
	return damaged(BadWALRecord, "%s: %s", filepath.Base(f.Name()), reason)
}

func (l *raftLog) decode(ctx context.Context, decoder wal.Decoder) error {
	rec := &walpb.Record{}
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.sum = decoder.LastCRC()
		err := decoder.Decode(rec)
		l.end = decoder.LastOffset()
		var disk *fs.PathError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &disk):
			return err
		case err != nil:
			return damaged(BadWALRecord, "record %d: %v", n, err)
		}
		if err := l.record(decoder, rec); err != nil {
			if stop, ok := errors.AsType[*visitError](err); ok {
				return stop.err
			}
			return damaged(BadWALRecord, "record %d: %v", n, err)
		}
	}
}

func (l *raftLog) record(decoder wal.Decoder, rec *walpb.Record) error {
	switch rec.GetType() {
	case wal.MetadataType:
		if l.metadata != nil && !bytes.Equal(l.metadata, rec.Data) {
			return wal.ErrMetadataConflict
		}
		l.metadata = bytes.Clone(rec.Data)
		return proto.Unmarshal(rec.Data, &l.ids)
	case wal.StateType:
		return proto.Unmarshal(rec.Data, &l.state)
	case wal.EntryType:
		var e raftpb.Entry
		if err := proto.Unmarshal(rec.Data, &e); err != nil {
			return err
		}
		l.entry(Position{Term: e.GetTerm(), Index: e.GetIndex()}, len(e.Data))
		if l.visit != nil {
			if err := l.visit(&e); err != nil {
				return &visitError{err: err}
			}
		}
	case wal.SnapshotType:
		var s walpb.Snapshot
		if err := proto.Unmarshal(rec.Data, &s); err != nil {
			return err
		}
		p := Position{Term: s.GetTerm(), Index: s.GetIndex()}
		l.snapshots = append(l.snapshots, p)
		l.shape.snapshot(p)
	case wal.CrcType:
		// A new file begins with the last checksum of the file before it. Before its first record, the decoder has
		// none.
		if crc := decoder.LastCRC(); crc != 0 && rec.Validate(crc) != nil {
			return wal.ErrCRCMismatch
		}
		decoder.UpdateCRC(rec.GetCrc())
	default:
		return fmt.Errorf("unknown type %d", rec.GetType())
	}
	return nil
}

// entry follows the log as etcd reads it: an entry replaces all previous entries with its index and above.
func (l *raftLog) entry(p Position, size int) {
	l.shape.entry(p, size)
	if !l.entries || p.Index > l.last.Index+1 || p.Index < l.gaplessFrom {
		l.gaplessFrom = p.Index
	}
	l.entries, l.last = true, p
}

// valid returns the committed snapshots, oldest first. etcd can start from these.
func (l *raftLog) valid() []Position {
	var valid []Position
	for _, s := range l.snapshots {
		if s.Index <= l.state.GetCommit() {
			valid = append(valid, s)
		}
	}
	return valid
}

func (l *raftLog) fill(r *Report) {
	r.ClusterID, r.MemberID = l.ids.GetClusterID(), l.ids.GetNodeID()
	r.Term, r.Vote, r.Commit = l.state.GetTerm(), l.state.GetVote(), l.state.GetCommit()
	r.Last, r.TornTail = l.last, l.tornTail
	if valid := l.valid(); len(valid) > 0 {
		r.Snapshot = valid[len(valid)-1]
		if r.Last.Index < r.Snapshot.Index {
			r.Last = r.Snapshot
		}
	}
}

// check reports whether raft can continue from the snapshot start with this log, and whether the log has everything
// that the backend has applied.
func (l *raftLog) check(start Position, consistentIndex uint64) error {
	last := max(l.last.Index, start.Index)
	switch {
	case start.Index < l.firstFile:
		return damaged(MissingWALFile, "the oldest log file begins at index %d, after the snapshot at index %d", l.firstFile, start.Index)
	case l.last.Index > start.Index && l.gaplessFrom > start.Index+1:
		return damaged(TornWAL, "the log has no entries between index %d and index %d", start.Index, l.gaplessFrom)
	case l.state.GetCommit() > last:
		return damaged(TornWAL, "the log ends at index %d, but index %d was committed", last, l.state.GetCommit())
	case consistentIndex > last:
		return damaged(ConsistentIndexAhead, "the log ends at index %d, but the backend has applied index %d", last, consistentIndex)
	}
	return nil
}

// startSnapshot returns the snapshot from which etcd of this minor version reads the log: the newest in the log, and
// before 3.7 the newest whose file can be read.
func startSnapshot(data string, l *raftLog, minor version) (Position, error) {
	valid := l.valid()
	if len(valid) == 0 {
		return Position{}, nil
	}
	if !minor.needsSnapFile() {
		return valid[len(valid)-1], nil
	}
	var broken error
	for _, p := range slices.Backward(valid) {
		if p.Index == 0 {
			continue // the log was compacted before its first file
		}
		path := filepath.Join(etcdlayout.ToSnapDir(data), fmt.Sprintf("%016x-%016x.snap", p.Term, p.Index))
		_, err := snap.Read(zap.NewNop(), path)
		var disk *fs.PathError
		switch {
		case err == nil:
			return p, nil
		case errors.As(err, &disk) && !errors.Is(err, fs.ErrNotExist):
			return Position{}, err
		case broken == nil:
			broken = fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	// Without a snapshot file, etcd begins at index 0, which works while the log has all entries from there.
	if l.firstFile == 0 || broken == nil {
		return Position{}, nil
	}
	return Position{}, damaged(MissingSnapshotFile, "the log begins at index %d, and no snapshot file can be read: %v", l.firstFile, broken)
}

// snapshotDB is the path of the backend that the leader sent with the snapshot at index.
func snapshotDB(data string, index uint64) string {
	return filepath.Join(etcdlayout.ToSnapDir(data), fmt.Sprintf("%016x.snap.db", index))
}

// openBackendFile opens a backend for reading. If it is missing, it returns errNoBackend.
func openBackendFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, errNoBackend
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// version is a minor version of etcd. The zero value is the newest.
type version struct{ major, minor int64 }

// v37 starts from the log and the backend alone. Earlier minor versions also need a .snap file.
var v37 = version{3, 7}

func parseMinor(s string) (version, error) {
	if s == "" {
		return version{}, nil
	}
	var v version
	if _, err := fmt.Sscanf(s, "%d.%d", &v.major, &v.minor); err != nil {
		return v, fmt.Errorf("etcd version %q: want major.minor: %w", s, err)
	}
	return v, nil
}

func (v version) needsSnapFile() bool {
	return v != version{} && (v.major < v37.major || v.major == v37.major && v.minor < v37.minor)
}

// lessThan reports whether the storage version of the backend is of a later minor version than v.
func (v version) lessThan(storage string) bool {
	if (v == version{}) || storage == "" {
		return false
	}
	s, err := semver.NewVersion(storage)
	if err != nil {
		return true // not a version that any etcd we know writes
	}
	return v.major < s.Major || v.major == s.Major && v.minor < s.Minor
}
