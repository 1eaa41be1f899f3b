package encrypt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
)

// read reads the complete object, and then its last bytes alone.
func (p place) read(t *testing.T, key string) (whole, end error) {
	t.Helper()
	s := p.open(t, true)
	_, whole = get(t, s, key, 0, -1)
	_, end = get(t, s, key, 1, -1)
	return whole, end
}

// found fails the test unless both ways to read the object return an error that names it and is not an end of file.
// Damage in a header may look like an identity that is missing.
func (p place) found(t *testing.T, damage string) {
	t.Helper()
	whole, end := p.read(t, object)
	for _, err := range []error{whole, end} {
		known := errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNoKey)
		if !known || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || !says(err, object) {
			t.Fatalf("%s: %v", damage, err)
		}
	}
}

func TestEachBitThatFlipsIsFound(t *testing.T) {
	p := newPlace(t)
	put(t, p.open(t, true), object, 300)
	raw := p.raw(t)
	for i := range raw {
		broken := bytes.Clone(raw)
		broken[i] ^= 1 << (i % 8)
		p.write(t, object+".age", broken)
		p.found(t, fmt.Sprintf("bit %d of byte %d", i%8, i))
	}
}

func TestEachTruncationIsFound(t *testing.T) {
	p := newPlace(t)
	for _, size := range []int64{0, 300, chunkSize, 2 * chunkSize, 2*chunkSize + 10} {
		if err := p.open(t, true).Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		put(t, p.open(t, true), object, size)
		raw := p.raw(t)
		for _, cut := range cuts(len(raw)) {
			p.write(t, object+".age", raw[:cut])
			p.found(t, fmt.Sprintf("%d of %d bytes", cut, len(raw)))
		}
		p.write(t, object+".age", append(bytes.Clone(raw), 0))
		p.found(t, fmt.Sprintf("one byte more than %d", len(raw)))
	}
}

// cuts returns all lengths of a small object, and for a large one those around the limits of its parts.
func cuts(length int) []int {
	var all []int
	for i := range length {
		payload := i - int(headerSize) - nonceSize
		near := payload % (chunkSize + tagSize)
		if i%97 == 0 && i < 4096 || payload >= -1 && (near <= 1 || near >= chunkSize-1) || i > length-20 {
			all = append(all, i)
		}
	}
	return all
}

// Chunks are bound to their position in the object. That objects do not change places is found by what they hold: see
// TestEncryptedBackupsOfARealEtcd in agent/cli/backup.
func TestChunksThatWereSwappedAreFound(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	put(t, s, object, 3*chunkSize)
	raw := p.raw(t)
	first, second := int(headerSize)+nonceSize, int(headerSize)+nonceSize+chunkSize+tagSize
	swapped := append(append(bytes.Clone(raw[:first]), raw[second:second+chunkSize+tagSize]...), raw[first:second]...)
	p.write(t, object+".age", append(swapped, raw[len(swapped):]...))
	p.found(t, "two chunks that changed places")
}

// Complete lineages may be moved: nothing in an object depends on the name of the cluster or of the bucket.
func TestAHistoryMayBeMoved(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	content := put(t, s, object, 500)
	moved := strings.Replace(object, "default/demo", "archive/2026/demo", 1)
	p.write(t, moved+".age", p.raw(t))
	if got, err := get(t, s, moved, 0, -1); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestFilesOfOthersAreNotTakenForOurs(t *testing.T) {
	p := newPlace(t)
	for name, content := range map[string]string{
		"no file of age": "hello",
		"an empty one":   "",
		"for someone else": "age-encryption.org/v1\n-> X25519 " +
			"TEiF0ypqr+bpvcqXNyCVJpL7OuwPdVwPL7KQEbFDOCc\nEmECAEcKN+n/Vs9SbWiV+Hu0r+E8R77DdWYyd83nw7U\n--- " +
			"Vn+54jqiiUCE+WZcEVY3f1sqHjlu/z1LCQ/T7Xm7qI0\n0123456789abcdef0123456789abcdef",
	} {
		p.write(t, object+".age", []byte(content))
		p.found(t, name)
	}
}
