package encrypt

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"filippo.io/age"

	"github.com/etcd-druid/druid/backup/store"
)

const (
	// currentName is the entry with the name of the entry whose identity encrypts.
	currentName = "current"
	// maxKeyFile is larger than any valid entry.
	maxKeyFile = 4 << 10
)

// namePattern matches valid names of entries in a Secret, except those that the kubelet uses itself.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}$`)

// keyring is a directory with age identities, usually a mounted Secret. It is read for each object, so that a rotation
// takes effect immediately.
type keyring struct{ dir string }

// recipient returns the recipient of the identity for encryption.
func (k keyring) recipient() (age.Recipient, error) {
	dir := k.resolved()
	content, err := readSmall(filepath.Join(dir, currentName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, k.without(currentName, "set it to the name of the entry with the identity for encryption")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: entry %s: %w", store.ErrNoKey, currentName, err)
	}
	name := strings.TrimSpace(string(content))
	if !namePattern.MatchString(name) || name == currentName {
		return nil, fmt.Errorf("%w: entry %s of %s does not have the name of an entry: want letters, digits, '-', '_' and '.'",
			store.ErrNoKey, currentName, k.dir)
	}
	identity, err := read(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, k.without(name, "restore the identity under this name")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: entry %s of %s: %w", store.ErrNoKey, name, k.dir, err)
	}
	return identity.Recipient(), nil
}

// identities returns the identities of all entries. It leaves out entries that have none, and returns why.
func (k keyring) identities() (all []age.Identity, unusable error) {
	dir := k.resolved()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, k.notMounted()
	}
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, e := range entries {
		if e.Name() == currentName || !namePattern.MatchString(e.Name()) {
			continue
		}
		identity, err := read(dir, e.Name())
		if err != nil {
			problems = append(problems, fmt.Errorf("entry %s: %w", e.Name(), err))
			continue
		}
		all = append(all, identity)
	}
	return all, errors.Join(problems...)
}

// read returns the identity in a file of age-keygen.
func read(dir, name string) (*age.X25519Identity, error) {
	content, err := readSmall(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	// The error of age is left out, because it may quote the content.
	if all, err := age.ParseIdentities(bytes.NewReader(content)); err == nil && len(all) == 1 {
		if identity, is := all[0].(*age.X25519Identity); is {
			return identity, nil
		}
	}
	return nil, errors.New("want one identity as age-keygen prints it, AGE-SECRET-KEY-1…")
}

// without returns the error for an entry that is missing, or for a Secret that is not mounted.
func (k keyring) without(entry, advice string) error {
	if _, err := os.Stat(k.dir); errors.Is(err, fs.ErrNotExist) {
		return k.notMounted()
	}
	return fmt.Errorf("%w: %s has no entry %s: %s", store.ErrNoKey, k.dir, entry, advice)
}

func (k keyring) notMounted() error {
	return fmt.Errorf("%w: directory %s does not exist: mount the Secret with the identities there; a Pod that is older than the reference to "+
		"the Secret must be replaced first",
		store.ErrNoKey, k.dir)
}

// resolved follows once the link by which the kubelet replaces all entries of a Secret atomically.
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
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxKeyFile)
	}
	return os.ReadFile(path)
}

// errEncrypted means that the bytes of an encrypted object are wrong.
var errEncrypted = errors.New("it is not what was encrypted")

// opener is the identity that decrypts with each identity of a keyring, nil for none.
type opener struct{ keys *keyring }

var _ age.Identity = opener{}

func (o opener) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != stanzaType {
		return nil, fmt.Errorf("%w by an agent: its header is not for one recipient of type %s", errEncrypted, stanzaType)
	}
	if o.keys == nil {
		return nil, fmt.Errorf("it is encrypted, but no keys are configured: %w: set the Secret with the identities (encryption.keySecretRef), or "+
			"its directory (--encryption-keys)",
			store.ErrNoKey)
	}
	all, unusable := o.keys.identities()
	for _, identity := range all {
		fileKey, err := identity.Unwrap(stanzas)
		if !errors.Is(err, age.ErrIncorrectIdentity) {
			return fileKey, err
		}
	}
	err := fmt.Errorf("%w: none of the %d identities in %s decrypts it: restore the identity that was in use when the object was saved; if %s "+
		"has it, the header of the object is damaged",
		store.ErrNoKey, len(all), o.keys.dir, o.keys.dir)
	if unusable != nil {
		return nil, fmt.Errorf("%w; %w", err, unusable)
	}
	return nil, err
}

const (
	// suffix of the name of an encrypted object.
	suffix = ".age"
	// record is the suffix of objects that are never encrypted.
	record = ".json"
)

// What age makes of an object: a header, a nonce, and chunks, each with its tag. An empty object has one empty chunk.
// age-encryption.org/v1 describes all of it.
const (
	chunkSize = 64 << 10
	tagSize   = 16
	nonceSize = 16
	// stanzaType of the only recipient in the header, with the sizes of its share and of the wrapped file key.
	stanzaType  = "X25519"
	shareSize   = 32
	wrappedSize = 16 + tagSize
	// macSize of the header.
	macSize = 32
)

// headerSize is the same for every encrypted object, because all parts of the header have a fixed length. Only
// therefore, a listing can compute the decrypted size.
var headerSize = int64(len("age-encryption.org/v1\n") +
	len("-> "+stanzaType+" ") + base64.RawStdEncoding.EncodedLen(shareSize) + 1 +
	base64.RawStdEncoding.EncodedLen(wrappedSize) + 1 +
	len("--- ") + base64.RawStdEncoding.EncodedLen(macSize) + 1)

// encryptedName returns the name under which an encrypted object is stored.
func encryptedName(key string) string { return key + suffix }

// isPlain reports whether objects with this key are never encrypted.
func isPlain(key string) bool { return strings.HasSuffix(key, record) }

// plainSize returns the decrypted size of an encrypted object of size bytes. For a truncated object, it is less than
// what was put.
func plainSize(size int64) int64 {
	payload := size - headerSize - nonceSize
	chunks := (payload + chunkSize + tagSize - 1) / (chunkSize + tagSize)
	return max(payload-chunks*tagSize, 0)
}

// encryptedLength returns how many bytes from the beginning of an encrypted object hold the first n decrypted ones; -1
// for all.
func encryptedLength(n int64) int64 {
	if n < 0 || n > math.MaxInt64/2 {
		return -1
	}
	chunks := (n + chunkSize - 1) / chunkSize
	return headerSize + nonceSize + chunks*(chunkSize+tagSize)
}
