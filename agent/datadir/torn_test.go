package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// walEntries is how many entries newWAL writes, each with its own sync.
const walEntries = 20

// newWAL writes a log with etcd's own code. Each entry takes more than two sectors.
func newWAL(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "wal")
	log, err := wal.Create(zap.NewNop(), dir, []byte{8, 1, 16, 2})
	must(t, err)
	must(t, log.SaveSnapshot(&walpb.Snapshot{Index: new(uint64(0)), Term: new(uint64(0))}))
	for i := range uint64(walEntries) {
		must(t, log.Save(&raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(2)), Commit: new(i)}, []*raftpb.Entry{
			{Term: new(uint64(1)), Index: new(i + 1), Data: bytes.Repeat([]byte{byte(i) + 1}, 1500)},
		}))
	}
	must(t, log.Close())
	return dir
}

// change writes bytes to the log file in dir.
func change(t *testing.T, dir string, off int64, raw ...byte) {
	t.Helper()
	f, err := os.OpenFile(onlyWAL(t, dir), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(raw, off)
	must(t, err)
	must(t, f.Close())
}

func onlyWAL(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	must(t, err)
	if len(paths) != 1 {
		t.Fatalf("the log has the files %v", paths)
	}
	return paths[0]
}

// records are the offsets at which the records of an intact log begin, by their kind.
func records(t *testing.T, dir string) map[int64][]int64 {
	t.Helper()
	f, err := os.Open(onlyWAL(t, dir))
	must(t, err)
	defer f.Close() // only read
	starts, decoder := map[int64][]int64{}, wal.NewDecoder(fileutil.NewFileReader(f))
	for rec, begin := (&walpb.Record{}), int64(0); ; begin = decoder.LastOffset() {
		if decoder.Decode(rec) != nil {
			return starts
		}
		if rec.GetType() == wal.CrcType {
			decoder.UpdateCRC(rec.GetCrc())
		}
		starts[rec.GetType()] = append(starts[rec.GetType()], begin)
	}
}

func TestWhatOnlyDamageExplainsIsNoTornTail(t *testing.T) {
	// sectorOf is the first whole sector of a record.
	sectorOf := func(start int64) int64 { return (start/sectorSize + 1) * sectorSize }
	zeros := make([]byte, sectorSize)
	for name, tc := range map[string]struct {
		// change damages a log. entry begins one of its entries, and last the last one. state begins the hard state after the last entry.
		change  func(dir string, entry, last, state int64)
		damaged bool
	}{
		"nothing": {func(string, int64, int64, int64) {}, false},
		"the length of an entry reaches beyond the file":    {func(dir string, entry, _, _ int64) { change(t, dir, entry+4, 1) }, true},
		"the length of an entry reaches into the zeros":     {func(dir string, entry, _, _ int64) { change(t, dir, entry+2, 8) }, true},
		"the length of the last entry reaches beyond":       {func(dir string, _, last, _ int64) { change(t, dir, last+4, 1) }, true},
		"the length of a hard state reaches into the zeros": {func(dir string, _, _, state int64) { change(t, dir, state+1, 1) }, true},
		"the length of an entry is zero":                    {func(dir string, entry, _, _ int64) { change(t, dir, entry, make([]byte, frameSize)...) }, true},
		"a sector of an earlier entry is empty":             {func(dir string, entry, _, _ int64) { change(t, dir, sectorOf(entry), zeros...) }, true},
		"a sector of the last entry is empty":               {func(dir string, _, last, _ int64) { change(t, dir, sectorOf(last), zeros...) }, false},
		"the first part of the last entry is empty": {func(dir string, _, last, _ int64) {
			change(t, dir, last, make([]byte, sectorOf(last)-last)...)
		}, false},
		"the last entry and what follows it are cut off": {func(dir string, _, last, _ int64) { must(t, os.Truncate(onlyWAL(t, dir), last+700)) }, false},
		"the last entry ends after its first sector": {func(dir string, _, last, _ int64) {
			change(t, dir, sectorOf(last), make([]byte, 4*sectorSize)...)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newWAL(t)
			starts := records(t, dir)
			entries, states := starts[wal.EntryType], starts[wal.StateType]
			if len(entries) != walEntries || len(states) < walEntries {
				t.Fatalf("the log has %d entries and %d hard states", len(entries), len(states))
			}
			tc.change(dir, entries[5], entries[walEntries-1], states[len(states)-1])
			l, err := readLog(t.Context(), dir)
			var found *damage
			if errors.As(err, &found) != tc.damaged || !tc.damaged && err != nil {
				t.Fatalf("error %v; the log ends at %+v", err, l.last)
			}
			if tc.damaged && (found.kind != BadWALRecord || l.tornTail) {
				t.Errorf("damage %v, torn tail %t", found, l.tornTail)
			}
			if !tc.damaged && name != "nothing" && !l.tornTail && l.last.Index == walEntries {
				t.Errorf("the change has no effect")
			}
		})
	}
}

// The sector with the length of a record can be missing while the disk has the next one: that is no damage.
func TestARecordWithoutItsLengthCanBeTorn(t *testing.T) {
	record := []byte{8, 2, 16, 0, 26, 1, 7}
	for off, want := range map[int64]bool{sectorSize - frameSize: false, sectorSize - 2*frameSize: true} {
		sum := crc32.Update(0, walTable, record[6:])
		raw := append([]byte{8, 2, 16}, binary.AppendUvarint(nil, uint64(sum))...)
		raw = append(raw, record[4:]...)
		path := filepath.Join(t.TempDir(), "x.wal")
		must(t, os.WriteFile(path, append(make([]byte, off+frameSize), raw...), 0o600))
		f, err := os.Open(path)
		must(t, err)
		reason, err := tornByDamage(f, off, 0)
		must(t, errors.Join(err, f.Close()))
		if (reason != "") != want {
			t.Errorf("at offset %d: %q", off, reason)
		}
	}
}
