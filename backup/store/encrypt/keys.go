package encrypt

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"filippo.io/age"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/etcd-druid/druid/backup/store"
)

const (
	// currentName is the entry with the ID of the key for encryption.
	currentName = "current"
	// keySize in bytes.
	keySize = 32
	// idWidth is the space for the ID of a key in a header.
	idWidth = 64
	// maxKeyFile is larger than any valid entry.
	maxKeyFile = 4 << 10
)

// idPattern matches valid names of entries in a Secret, except those that the kubelet uses itself.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// key is a key of the user.
type key struct {
	id     string
	secret []byte
}

// keyring is a directory of keys, usually a mounted Secret. It is read for each object, so that a rotation takes
// effect immediately.
type keyring struct{ dir string }

// current returns the key for encryption.
func (k keyring) current() (key, error) {
	dir := k.resolved()
	content, err := readSmall(filepath.Join(dir, currentName))
	if errors.Is(err, fs.ErrNotExist) {
		return key{}, k.without(currentName, "set it to the name of the entry with the key for encryption")
	}
	if err != nil {
		return key{}, fmt.Errorf("%w: entry %s: %w", store.ErrNoKey, currentName, err)
	}
	id := strings.TrimSpace(string(content))
	if !idPattern.MatchString(id) || id == currentName {
		return key{}, fmt.Errorf("%w: entry %s of %s does not have the name of an entry: want up to %d letters, digits, '-', '_' and '.'",
			store.ErrNoKey, currentName, k.dir, idWidth)
	}
	return k.read(dir, id)
}

// named returns the key with an ID.
func (k keyring) named(id string) (key, error) {
	if !idPattern.MatchString(id) || id == currentName {
		return key{}, fmt.Errorf("%w: %q is not the ID of a key", store.ErrNoKey, id)
	}
	return k.read(k.resolved(), id)
}

func (k keyring) read(dir, id string) (key, error) {
	content, err := readSmall(filepath.Join(dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return key{}, k.without(id, "restore the key under this name")
	}
	if err != nil {
		return key{}, fmt.Errorf("%w: key %s: %w", store.ErrNoKey, id, err)
	}
	if len(content) == keySize {
		return key{id, content}, nil
	}
	secret, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(content)))
	if err != nil || len(secret) != keySize {
		return key{}, fmt.Errorf("%w: key %s in %s: want %d bytes, raw or in base64", store.ErrNoKey, id, k.dir, keySize)
	}
	return key{id, secret}, nil
}

// without returns the error for an entry that is missing, or for a Secret that is not mounted.
func (k keyring) without(entry, advice string) error {
	if _, err := os.Stat(k.dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: directory %s does not exist: mount the Secret with the keys there; a Pod that is older than the reference to the Secret must be replaced first",
			store.ErrNoKey, k.dir)
	}
	return fmt.Errorf("%w: %s has no entry %s: %s", store.ErrNoKey, k.dir, entry, advice)
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

// The stanza is what age's header says of who can open the file: type, and as arguments version, ID of the key, check of the
// key, and hash of the object's name. All are of a fixed width.
const (
	stanzaType = "etcd-druid"
	version    = "1"
	padding    = "=" // fills up an ID; no ID has it
	checkWidth = 16
	nameWidth  = 64
	saltSize   = 16
	// wrappedSize is that of the file key of age, 16 bytes, with its tag.
	wrappedSize = 16 + chacha20poly1305.Overhead
)

// Purposes of what is derived from a key. They are part of the format.
const (
	purposeCheck = "etcd-druid backup key check 1"
	purposeWrap  = "etcd-druid backup key wrap 1"
)

// errEncrypted means that the bytes of an encrypted object are wrong.
var errEncrypted = errors.New("it is not what was encrypted")

func hashOf(object string) string {
	sum := sha256.Sum256([]byte(bound(object)))
	return hex.EncodeToString(sum[:])
}

// check returns a value that distinguishes keys with the same ID and reveals nothing else about them.
func (k key) check() (string, error) {
	sum, err := hkdf.Key(sha256.New, k.secret, nil, purposeCheck, checkWidth/2)
	return hex.EncodeToString(sum), err
}

// wrapper returns a cipher for the only file key that has this salt. Its nonce may therefore be zero, as in the
// recipients of age. The arguments of the stanza are bound to it.
func (k key) wrapper(salt []byte, args []string) (open func([]byte) ([]byte, error), seal func([]byte) []byte, err error) {
	derived, err := hkdf.Key(sha256.New, k.secret, salt, purposeWrap, keySize)
	if err != nil {
		return nil, nil, err
	}
	aead, err := chacha20poly1305.New(derived)
	if err != nil {
		return nil, nil, err
	}
	nonce, bound := make([]byte, chacha20poly1305.NonceSize), []byte(strings.Join(args, " "))
	open = func(wrapped []byte) ([]byte, error) { return aead.Open(nil, nonce, wrapped, bound) }
	seal = func(fileKey []byte) []byte { return aead.Seal(nil, nonce, fileKey, bound) }
	return open, seal, nil
}

// wrapping is the recipient for one object.
type wrapping struct {
	key    key
	object string
}

var _ age.Recipient = wrapping{}

func (s wrapping) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	check, err := s.key.check()
	if err != nil {
		return nil, err
	}
	args := []string{version, s.key.id + strings.Repeat(padding, idWidth-len(s.key.id)), check, hashOf(s.object)}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // it never fails
	_, seal, err := s.key.wrapper(salt, args)
	if err != nil {
		return nil, err
	}
	return []*age.Stanza{{Type: stanzaType, Args: args, Body: append(salt, seal(fileKey)...)}}, nil
}

// opener is the identity that decrypts one object.
type opener struct {
	keys   *keyring // nil for none
	object string
}

var _ age.Identity = opener{}

func (o opener) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != stanzaType || len(stanzas[0].Args) == 0 {
		return nil, fmt.Errorf("%w by an agent: its header is from another program", errEncrypted)
	}
	s := stanzas[0]
	if s.Args[0] != version {
		return nil, fmt.Errorf("it is encrypted in version %q, but this program supports %s: %w", s.Args[0], version, store.ErrNewer)
	}
	if len(s.Args) != 4 || len(s.Args[1]) != idWidth || len(s.Body) != saltSize+wrappedSize {
		return nil, fmt.Errorf("%w: its header is invalid", errEncrypted)
	}
	if s.Args[3] != hashOf(o.object) {
		return nil, fmt.Errorf("%w under this name: it was renamed, or swapped with another object", errEncrypted)
	}
	id := strings.TrimRight(s.Args[1], padding)
	if o.keys == nil {
		return nil, fmt.Errorf("it is encrypted with key %s, but no keys are configured: %w: set the Secret with the key (encryption.keySecretRef), or its directory (--encryption-keys)",
			id, store.ErrNoKey)
	}
	k, err := o.keys.named(id)
	if err != nil {
		return nil, fmt.Errorf("it is encrypted with key %s: %w; the object cannot be read without this key", id, err)
	}
	return unwrap(k, s, o.keys.dir)
}

func unwrap(k key, s *age.Stanza, dir string) ([]byte, error) {
	check, err := k.check()
	if err != nil {
		return nil, err
	}
	if check != s.Args[2] {
		return nil, fmt.Errorf("it is encrypted with key %s, but the key of this name in %s is different: %w: its check is %s, that of the object is %s; restore the old key, and give a new key a new name",
			k.id, dir, store.ErrNoKey, check, s.Args[2])
	}
	open, _, err := k.wrapper(s.Body[:saltSize], s.Args)
	if err != nil {
		return nil, err
	}
	fileKey, err := open(s.Body[saltSize:])
	if err != nil {
		return nil, fmt.Errorf("%w: its header was changed", errEncrypted)
	}
	return fileKey, nil
}

const (
	// suffix of the name of an encrypted object.
	suffix = ".age"
	// record is the suffix of objects that are never encrypted.
	record = ".json"
)

// What age makes of an object: a header, a nonce, and chunks, each with its tag. An empty object has one empty chunk.
const (
	chunkSize = 64 << 10
	tagSize   = 16
	nonceSize = 16
)

// headerSize is the same for every encrypted object, because all parts of the header have a fixed length. Only
// therefore, a listing can compute the decrypted size.
var headerSize = int64(len("age-encryption.org/v1\n") +
	len("-> "+stanzaType+" "+version+" ") + idWidth + 1 + checkWidth + 1 + nameWidth + 1 +
	base64.RawStdEncoding.EncodedLen(saltSize+wrappedSize) + 2 + // its line is full, so that an empty one follows
	len("--- ") + base64.RawStdEncoding.EncodedLen(macSize) + 1)

// macSize of the header of age.
const macSize = 32

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

// bound returns the part of a key that an encrypted object is bound to: its last three names, which are lineage, kind
// and name of a backup. The part before them may change, so that complete lineages can be moved.
func bound(key string) string {
	names := strings.Split(key, "/")
	return strings.Join(names[max(len(names)-3, 0):], "/")
}
