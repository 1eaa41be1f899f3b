package datadir

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

type damageFunc = func(*testing.T, string)

func all(damages ...damageFunc) damageFunc {
	return func(t *testing.T, dir string) {
		for _, d := range damages {
			d(t, dir)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fingerprint is the name and the content of everything on the volume.
func fingerprint(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	prints := map[string][32]byte{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			prints[path] = [32]byte{}
			return err
		}
		raw, err := os.ReadFile(path)
		prints[path] = sha256.Sum256(raw)
		return err
	}))
	return prints
}

func mkdir(name string) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.MkdirAll(filepath.Join(dir, name), 0o700)) }
}

func remove(name string) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "data", "member", name))) }
}

func emptyDir(name string) damageFunc {
	return all(remove(name), mkdir(filepath.Join("data", "member", name)))
}

func walAt(t *testing.T, dir string, i int) string {
	t.Helper()
	paths := walPaths(t, dir)
	return paths[(i+len(paths))%len(paths)]
}

func removeWAL(i int) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.Remove(walAt(t, dir, i))) }
}

// removeWALBelowSnapshot keeps only the start of the last file, which has no snapshot, as after purging too much.
func removeWALBelowSnapshot(t *testing.T, dir string) {
	paths := walPaths(t, dir)
	for _, p := range paths[:len(paths)-1] {
		must(t, os.Remove(p))
	}
	cutTail(t, dir)
}

func cutWAL(i int, part int64) damageFunc {
	return func(t *testing.T, dir string) {
		path := walAt(t, dir, i)
		info, err := os.Stat(path)
		must(t, err)
		// At the end of a record, so that nothing is torn and only the checksum of the next file reports.
		offsets := recordEnds(t, path)
		cut := offsets[0]
		for _, o := range offsets {
			if o <= info.Size()/part {
				cut = o
			}
		}
		must(t, os.Truncate(path, cut))
	}
}

func cutRecord(i int) damageFunc {
	return func(t *testing.T, dir string) {
		path := walAt(t, dir, i)
		offsets := recordEnds(t, path)
		must(t, os.Truncate(path, offsets[len(offsets)/2]-20))
	}
}

// cutTail removes complete records from the end, as a file system repair might.
func cutTail(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	must(t, os.Truncate(path, offsets[1]))
}

// tearTail appends a record of which only the beginning reached the disk, as after a crash.
func tearTail(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	torn := binary.LittleEndian.AppendUint64(nil, 5000)
	torn = append(torn, 8, 2, 16)
	_, err = f.WriteAt(torn, offsets[len(offsets)-1])
	must(t, err)
	must(t, f.Truncate(offsets[len(offsets)-1]+600))
	must(t, f.Close())
}

// zeroTail appends a record whose later sectors never reached the disk.
func zeroTail(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	record := append(binary.LittleEndian.AppendUint64(nil, 2000), 8, 2, 16, 1, 26)
	_, err = f.WriteAt(record, offsets[len(offsets)-1])
	must(t, err)
	must(t, f.Close())
}

// recordEnds returns the offsets at which the records of a file end. It uses etcd's decoder.
func recordEnds(t *testing.T, path string) []int64 {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close() // only read
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	var ends []int64
	for rec := (&walpb.Record{}); ; {
		err := decoder.Decode(rec)
		if errors.Is(err, io.EOF) {
			return ends
		}
		must(t, err)
		if rec.GetType() == wal.CrcType {
			decoder.UpdateCRC(rec.GetCrc())
		}
		ends = append(ends, decoder.LastOffset())
	}
}

func flipWAL(i int) damageFunc {
	return func(t *testing.T, dir string) {
		path := walAt(t, dir, i)
		offsets := recordEnds(t, path)
		flip(t, path, offsets[len(offsets)/2]-10)
	}
}

// flipLength lets a record in the middle of the last file reach beyond that file.
func flipLength(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	flip(t, path, offsets[len(offsets)/2]+4)
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	must(t, err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b[:], off)
	must(t, err)
	must(t, f.Close())
}

func truncate(size int64) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.Truncate(dbPath(dir), size)) }
}

// truncateHalf cuts pages that are in use. The file of bbolt is longer than those.
func truncateHalf(t *testing.T, dir string) {
	m := metaOf(t, dir)
	truncate(int64(m.End*m.PageSize/2))(t, dir)
}

func snaps(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(dbPath(dir)), "*.snap"))
	must(t, err)
	if len(paths) < 3 {
		t.Fatalf("etcd left %d snapshot files", len(paths))
	}
	return paths
}

func removeSnaps(t *testing.T, dir string) {
	for _, p := range snaps(t, dir) {
		must(t, os.Remove(p))
	}
}

func tearSnaps(t *testing.T, dir string) {
	for _, p := range snaps(t, dir) {
		must(t, os.Truncate(p, 100))
	}
}

func tearNewestSnap(t *testing.T, dir string) {
	paths := snaps(t, dir)
	must(t, os.Truncate(paths[len(paths)-1], 100))
}
