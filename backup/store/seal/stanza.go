package seal

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/etcd-druid/druid/backup/store"
)

// The stanza is what age's header says of who can open the file: type, and as arguments version, ID of the key, check of the
// key, and hash of the object's name. All are of a fixed width.
const (
	stanzaType = "etcd-druid"
	version    = "1"
	padding    = "=" // fills up an ID; no ID has it
	checkWidth = 16
	nameWidth  = 64
	saltSize   = 16
	// wrappedSize is that of age's file key, 16 bytes, with its tag.
	wrappedSize = 16 + chacha20poly1305.Overhead
)

// Purposes of what is derived from a key. They are part of the format.
const (
	purposeCheck = "etcd-druid backup key check 1"
	purposeWrap  = "etcd-druid backup key wrap 1"
)

// errSealed is what is wrong with a sealed object's bytes.
var errSealed = errors.New("it is not what was sealed")

func hashOf(object string) string {
	sum := sha256.Sum256([]byte(bound(object)))
	return hex.EncodeToString(sum[:])
}

// check reports keys apart that have the same ID, and reports nothing else of them.
func (k key) check() (string, error) {
	sum, err := hkdf.Key(sha256.New, k.secret, nil, purposeCheck, checkWidth/2)
	return hex.EncodeToString(sum), err
}

// wrapper is a cipher for the one file key that has this salt; so its nonce may be zero, as with age's own recipients. The
// arguments of the stanza are bound to it.
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

// sealer is the recipient of one object.
type sealer struct {
	key    key
	object string
}

var _ age.Recipient = sealer{}

func (s sealer) Wrap(fileKey []byte) ([]*age.Stanza, error) {
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

// opener is the identity that opens one object.
type opener struct {
	keys   *keyring // nil for none
	object string
}

var _ age.Identity = opener{}

func (o opener) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != stanzaType || len(stanzas[0].Args) == 0 {
		return nil, fmt.Errorf("%w by an agent: its header is of another program", errSealed)
	}
	s := stanzas[0]
	if s.Args[0] != version {
		return nil, fmt.Errorf("it is sealed in version %q, this one knows %s: %w", s.Args[0], version, store.ErrNewer)
	}
	if len(s.Args) != 4 || len(s.Args[1]) != idWidth || len(s.Body) != saltSize+wrappedSize {
		return nil, fmt.Errorf("%w: its header is not one", errSealed)
	}
	if s.Args[3] != hashOf(o.object) {
		return nil, fmt.Errorf("%w under this name: it was renamed, or swapped with another object", errSealed)
	}
	id := strings.TrimRight(s.Args[1], padding)
	if o.keys == nil {
		return nil, fmt.Errorf("it is sealed with key %s, and no keys are configured: %w: name the Secret that has it (encryption.keySecretRef), or its directory (--encryption-keys)",
			id, store.ErrNoKey)
	}
	k, err := o.keys.named(id)
	if err != nil {
		return nil, fmt.Errorf("it is sealed with key %s: %w; without it no one can read the object", id, err)
	}
	return unwrap(k, s, o.keys.dir)
}

func unwrap(k key, s *age.Stanza, dir string) ([]byte, error) {
	check, err := k.check()
	if err != nil {
		return nil, err
	}
	if check != s.Args[2] {
		return nil, fmt.Errorf("it is sealed with key %s, and the one of this name in %s is another: %w: its check is %s, the object's %s; put the old bytes back, and give new ones a new name",
			k.id, dir, store.ErrNoKey, check, s.Args[2])
	}
	open, _, err := k.wrapper(s.Body[:saltSize], s.Args)
	if err != nil {
		return nil, err
	}
	fileKey, err := open(s.Body[saltSize:])
	if err != nil {
		return nil, fmt.Errorf("%w: its header was changed", errSealed)
	}
	return fileKey, nil
}
