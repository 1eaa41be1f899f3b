package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dirAnnotation is where the rig's provisioner says which directory of this machine a volume is.
const dirAnnotation = "rig/dir"

// Volume is a member's volume, as a directory of the machine that carries the rig. It is to be changed only while
// nothing runs on it: see HoldDown.
type Volume struct{ Dir string }

// VolumeOf finds a member's volume.
func (c *Cluster) VolumeOf(t testing.TB, member string) Volume {
	t.Helper()
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := c.Rig.Client.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: member}, claim); err != nil {
		t.Fatalf("PersistentVolumeClaim %s: %v", member, err)
	}
	if err := c.Rig.Client.Get(t.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		t.Fatalf("PersistentVolume %q of %s: %v", claim.Spec.VolumeName, member, err)
	}
	dir := volume.Annotations[dirAnnotation]
	if dir == "" {
		t.Fatalf("PersistentVolume %s says no directory in annotation %s", volume.Name, dirAnnotation)
	}
	return Volume{Dir: dir}
}

// Wipe empties the volume.
func (v Volume) Wipe(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(v.Dir)
	if err != nil {
		t.Fatalf("wipe volume: %v", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(v.Dir, e.Name())); err != nil {
			t.Fatalf("wipe volume: %v", err)
		}
	}
}

// WipeData removes the data directory and leaves what else is on the volume.
func (v Volume) WipeData(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(v.Dir, "data")); err != nil {
		t.Fatalf("wipe data: %v", err)
	}
}

// Copy copies the volume's content, with owners and modes, to a directory of the test.
func (v Volume) Copy(t testing.TB) Volume {
	t.Helper()
	to := Volume{Dir: t.TempDir()}
	to.SetTo(t, v)
	return to
}

// SetTo replaces the volume's content by that of another.
func (v Volume) SetTo(t testing.TB, from Volume) {
	t.Helper()
	v.Wipe(t)
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from.Dir+"/.", v.Dir).CombinedOutput()
	if err != nil {
		t.Fatalf("copy volume: %v: %s", err, out)
	}
}

// Has says whether anything in the volume matches the pattern of filepath.Match.
func (v Volume) Has(t testing.TB, pattern string) bool {
	t.Helper()
	return len(v.glob(t, pattern)) > 0
}

// Quarantined returns the directories of data in quarantine.
func (v Volume) Quarantined(t testing.TB) []string {
	t.Helper()
	return v.glob(t, "data.quarantine-*")
}

func (v Volume) glob(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(v.Dir, pattern))
	if err != nil {
		t.Fatalf("look for %s in volume: %v", pattern, err)
	}
	slices.Sort(found)
	return found
}

// logs returns the files of the write-ahead log, the oldest first. There is at least one.
func (v Volume) logs(t testing.TB) []string {
	t.Helper()
	logs := v.glob(t, "data/member/wal/*.wal")
	if len(logs) == 0 {
		t.Fatalf("volume %s holds no write-ahead log", v.Dir)
	}
	return logs
}

// TruncateWAL cuts the write-ahead log in the middle of what it holds, far below what was committed.
func (v Volume) TruncateWAL(t testing.TB) {
	t.Helper()
	logs := v.logs(t)
	end := endOfContent(t, logs[0])
	if err := os.Truncate(logs[0], end/2); err != nil {
		t.Fatalf("truncate write-ahead log: %v", err)
	}
	for _, later := range logs[1:] {
		if err := os.Remove(later); err != nil {
			t.Fatalf("truncate write-ahead log: %v", err)
		}
	}
}

// FlipLog changes one byte in the middle of the write-ahead log, far below what was committed. The log becomes another file: a copy that
// a test keeps as a link does not change.
func (v Volume) FlipLog(t testing.TB) {
	t.Helper()
	v.flipLog(t, func(content []byte, end int64) int64 {
		at := end / 2
		for content[at] == 0 { // the bytes that fill a record up are zero and have no checksum
			at++
		}
		return at
	})
}

// FlipLogAt changes one byte of the first text in the write-ahead log after a part of its content. A text in a value is in no length of a
// record, which could look like the end of the log.
func (v Volume) FlipLogAt(t testing.TB, part float64, text string) {
	t.Helper()
	v.flipLog(t, func(content []byte, end int64) int64 {
		from := int64(float64(end) * part)
		at := bytes.Index(content[from:end], []byte(text))
		if at < 0 {
			t.Fatalf("the write-ahead log does not have %q in its last %d bytes", text, end-from)
		}
		return from + int64(at)
	})
}

// flipLog changes the byte of the write-ahead log that where returns.
func (v Volume) flipLog(t testing.TB, where func(content []byte, end int64) int64) {
	t.Helper()
	logs := v.logs(t)
	content, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatalf("read write-ahead log: %v", err)
	}
	at := where(content, endOfContent(t, logs[0]))
	content[at] ^= 1
	damaged := logs[0] + ".damaged"
	out, err := exec.CommandContext(t.Context(), "cp", "--archive", "--sparse=always", logs[0], damaged).CombinedOutput()
	if err != nil {
		t.Fatalf("copy write-ahead log: %v: %s", err, out)
	}
	file, err := os.OpenFile(damaged, os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("flip a byte: %v", err)
	}
	_, err = file.WriteAt(content[at:at+1], at)
	if err := errorsOf(err, file.Close(), os.Rename(damaged, logs[0])); err != nil {
		t.Fatalf("flip a byte of the write-ahead log: %v", err)
	}
}

// endOfContent finds the end of what was written: etcd allocates its log files in advance, filled with zeros.
func endOfContent(t testing.TB, file string) int64 {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read write-ahead log: %v", err)
	}
	end := len(content)
	for end > 0 && content[end-1] == 0 {
		end--
	}
	return int64(end)
}

// FlipByte changes the first byte of a value in the database. The member may run, if its etcd has nothing to write: etcd maps the file.
func (v Volume) FlipByte(t testing.TB, value string) {
	t.Helper()
	path := filepath.Join(v.Dir, "data/member/snap/db")
	Eventually(t, flipWithin, "the value is on the disk, and etcd writes no page again", func(context.Context) error {
		content, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(content, []byte(value)) {
			err = errors.New("it is not on the disk")
		}
		info, statErr := os.Stat(path)
		if err = errors.Join(err, statErr); err == nil && time.Since(info.ModTime()) < atRest {
			err = errors.New("the database was just written")
		}
		return err
	})
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("flip a byte: %v", err)
	}
	db, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("flip a byte: %v", err)
	}
	defer db.Close()
	for at := bytes.LastIndex(content, []byte(value)); at >= 0; at = bytes.LastIndex(content[:at], []byte(value)) {
		if _, err := db.WriteAt([]byte{value[0] ^ 0x20}, int64(at)); err != nil {
			t.Fatalf("flip a byte: %v", err)
		}
	}
}

// Keeps says whether the database still has a text, as soon as it has what was written last.
func (v Volume) Keeps(t testing.TB, text, last string) bool {
	t.Helper()
	var content []byte
	Eventually(t, flipWithin, "what was written last is on the disk", func(context.Context) (err error) {
		content, err = os.ReadFile(filepath.Join(v.Dir, "data/member/snap/db"))
		if err == nil && !bytes.Contains(content, []byte(last)) {
			err = errors.New("it is not")
		}
		return err
	})
	return bytes.Contains(content, []byte(text))
}

// atRest is ten times the interval at which etcd writes its database. Until then, a transaction can have the page in memory.
const atRest = time.Second

// flipWithin is many times the interval at which etcd writes its database.
const flipWithin = 30 * time.Second

// FlipPages destroys the first pages of the database but for the two meta pages, which bbolt keeps in duplicate. Which of
// the pages are in use changes with every transaction; some of so many always are.
func (v Volume) FlipPages(t testing.TB) {
	t.Helper()
	const firstPage, pages = 2, 64
	page := int64(os.Getpagesize())
	db, err := os.OpenFile(filepath.Join(v.Dir, "data/member/snap/db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("flip pages: %v", err)
	}
	defer db.Close()
	content := make([]byte, pages*page)
	n, err := db.ReadAt(content, firstPage*page)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("read the database: %v", err)
	}
	for i := range content[:n] {
		content[i] ^= 0xff
	}
	if _, err := db.WriteAt(content[:n], firstPage*page); err != nil {
		t.Fatalf("write the database: %v", err)
	}
}

// DamageValue makes the value of a key in the database one that cannot be decoded. An etcd that runs on the volume goes on until it
// reads the key; its snapshots have the damage.
func (v Volume) DamageValue(t testing.TB, key string) {
	t.Helper()
	// A value is an mvccpb.KeyValue, which begins with its field 1: the tag 0x0a, the length of the key, and the key.
	field := append([]byte{0x0a, byte(len(key))}, key...)
	path := filepath.Join(v.Dir, "data/member/snap/db")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read the database: %v", err)
	}
	db, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	defer db.Close()
	found := false
	for at := 0; ; at += len(field) {
		next := bytes.Index(content[at:], field)
		if next < 0 {
			break
		}
		at, found = at+next, true
		if _, err := db.WriteAt([]byte{0x0f}, int64(at)); err != nil { // no wire type of protobuf
			t.Fatalf("write the database: %v", err)
		}
	}
	if !found {
		t.Fatalf("the database of volume %s does not have key %s", v.Dir, key)
	}
}

// Refuse makes the volume unwritable for the user that members run as, and Accept undoes that.
func (v Volume) Refuse(t testing.TB) {
	t.Helper()
	v.own(t, 0, 0o755)
}

// Accept makes the volume writable for everybody, as the provisioner made it.
func (v Volume) Accept(t testing.TB) {
	t.Helper()
	v.own(t, 0, 0o777)
}

func (v Volume) own(t testing.TB, uid int, mode os.FileMode) {
	t.Helper()
	if err := errorsOf(os.Chown(v.Dir, uid, uid), os.Chmod(v.Dir, mode)); err != nil {
		t.Fatalf("change the owner of volume %s: %v", v.Dir, err)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("volume: %w", err)
		}
	}
	return nil
}
