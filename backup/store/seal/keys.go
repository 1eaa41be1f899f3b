package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/etcd-druid/druid/backup/store"
)

const (
	// currentName is the entry that reports which key seals.
	currentName = "current"
	// keySize in bytes.
	keySize = 32
	// idWidth is the room for a key's ID in a header.
	idWidth = 64
	// maxKeyFile is more than any of the entries that make sense.
	maxKeyFile = 4 << 10
)

// idPattern is what a Secret's entry may be called, but for the names that the kubelet has for itself.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// key is one of the user's.
type key struct {
	id     string
	secret []byte
}

// keyring is a directory of keys, mostly a mounted Secret. It is read for each object, so that a rotation is seen at once.
type keyring struct{ dir string }

// current is the key that seals.
func (k keyring) current() (key, error) {
	dir := k.resolved()
	content, err := readSmall(filepath.Join(dir, currentName))
	if errors.Is(err, fs.ErrNotExist) {
		return key{}, k.without(currentName, "name in it the entry whose key is to seal")
	}
	if err != nil {
		return key{}, fmt.Errorf("%w: entry %s: %w", store.ErrNoKey, currentName, err)
	}
	id := strings.TrimSpace(string(content))
	if !idPattern.MatchString(id) || id == currentName {
		return key{}, fmt.Errorf("%w: entry %s of %s is not the name of an entry: want up to %d letters, digits, '-', '_' and '.'",
			store.ErrNoKey, currentName, k.dir, idWidth)
	}
	return k.read(dir, id)
}

// named is the key of that ID.
func (k keyring) named(id string) (key, error) {
	if !idPattern.MatchString(id) || id == currentName {
		return key{}, fmt.Errorf("%w: %q is no ID of a key", store.ErrNoKey, id)
	}
	return k.read(k.resolved(), id)
}

func (k keyring) read(dir, id string) (key, error) {
	content, err := readSmall(filepath.Join(dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return key{}, k.without(id, "put that key back under this name")
	}
	if err != nil {
		return key{}, fmt.Errorf("%w: key %s: %w", store.ErrNoKey, id, err)
	}
	if len(content) == keySize {
		return key{id, content}, nil
	}
	secret, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(content)))
	if err != nil || len(secret) != keySize {
		return key{}, fmt.Errorf("%w: key %s in %s: want %d bytes, or those in base64", store.ErrNoKey, id, k.dir, keySize)
	}
	return key{id, secret}, nil
}

// without reports an entry that is missing from a Secret that is not mounted.
func (k keyring) without(entry, advice string) error {
	if _, err := os.Stat(k.dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no directory %s: mount the Secret with the keys there; a Pod that is older than the reference to it has it only after it was replaced",
			store.ErrNoKey, k.dir)
	}
	return fmt.Errorf("%w: %s has no entry %s: %s", store.ErrNoKey, k.dir, entry, advice)
}

// resolved follows once the link by which the kubelet changes all entries of a Secret at once.
func (k keyring) resolved() string {
	if data, err := filepath.EvalSymlinks(filepath.Join(k.dir, "..data")); err == nil {
		return data
	}
	return k.dir
}

func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxKeyFile:
		return nil, fmt.Errorf("%s is no file, or one of more than %d bytes", path, maxKeyFile)
	}
	return os.ReadFile(path)
}
