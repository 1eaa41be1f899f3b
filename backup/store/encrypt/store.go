package encrypt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/etcd-druid/druid/backup/store"
)

// Store encrypts the objects of another store. Without keys, it only lists the encrypted ones.
type Store struct {
	inner store.Store
	keys  *keyring // nil for none
}

var _ store.Store = (*Store)(nil)

// Around returns inner with encryption. If c is nil, it lists encrypted objects, and reading one returns an error that
// says what is missing. Around does not read the keys yet.
func Around(inner store.Store, c *store.ClientEncryption) *Store {
	s := &Store{inner: inner}
	if c != nil {
		s.keys = &keyring{c.KeysDir}
	}
	return s
}

// String names the store as in its errors.
func (s *Store) String() string { return fmt.Sprint(s.inner) }

// Connections returns 1 with keys: each additional range of an encrypted object first needs requests for its size, its
// header and its last chunk.
func (s *Store) Connections() int {
	if s.keys != nil {
		return 1
	}
	return store.Connections(s.inner)
}

// Put encrypts the content of r for the current identity. If it cannot read the identity, it puts nothing.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if err := checkKey(key); err != nil {
		return store.Object{}, err
	}
	if s.keys == nil || isPlain(key) {
		return s.inner.Put(ctx, key, r, o)
	}
	if o.IfAbsent {
		// It may exist from before there were keys. A writer without keys that puts the same name at the same moment
		// is not detected: then two complete objects exist.
		if err := s.isAbsent(ctx, key); err != nil {
			return store.Object{}, err
		}
	}
	recipient, err := s.keys.recipient()
	if err != nil {
		return store.Object{}, fmt.Errorf("put %s in %s: encrypt it: %w; nothing was stored", key, s, err)
	}
	encrypted, err := age.EncryptReader(r, recipient)
	if err != nil {
		return store.Object{}, fmt.Errorf("put %s in %s: encrypt it: %w", key, s, err)
	}
	object, err := s.inner.Put(ctx, encryptedName(key), encrypted, o)
	if err != nil {
		return store.Object{}, err
	}
	if !o.IfAbsent {
		if err := s.inner.Delete(ctx, key); err != nil { // the object that it replaces
			return store.Object{}, err
		}
	}
	object.Key, object.Size = key, plainSize(object.Size)
	return object, nil
}

func (s *Store) isAbsent(ctx context.Context, key string) error {
	r, err := s.inner.Get(ctx, key, 0, 0)
	switch {
	case errors.Is(err, store.ErrAbsent):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(fmt.Errorf("put %s in %s: %w, not encrypted", key, s, store.ErrExists), r.Close())
}

// List yields encrypted and plain objects by the names under which they were put. If both exist under one name, it
// yields the one that Get reads.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		all, err := s.list(ctx, prefix)
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Object{}, err)
		}
	}
}

// list returns the objects in the order of the names without suffix, which differs from the order with suffix.
func (s *Store) list(ctx context.Context, prefix string) ([]store.Object, error) {
	var all []store.Object
	var failed error
	encrypted := map[string]bool{}
	for o, err := range s.inner.List(ctx, prefix) {
		if err != nil {
			failed = err
			break
		}
		name, is := strings.CutSuffix(o.Key, suffix)
		if is = is && !isPlain(name); is {
			o.Key, o.Size = name, plainSize(o.Size)
		}
		if !strings.HasPrefix(o.Key, prefix) { // the prefix ends within the suffix
			continue
		}
		if other, twice := encrypted[o.Key]; twice && other != is {
			if is == (s.keys != nil) {
				all[slices.IndexFunc(all, func(a store.Object) bool { return a.Key == o.Key })] = o
			}
			continue
		}
		encrypted[o.Key] = is
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b store.Object) int { return strings.Compare(a.Key, b.Key) })
	return all, failed
}

// Delete removes both the encrypted and the plain object of this name.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if isPlain(key) {
		return s.inner.Delete(ctx, key)
	}
	if err := s.inner.Delete(ctx, encryptedName(key)); err != nil {
		return err
	}
	return s.inner.Delete(ctx, key)
}

// Sweep removes the remains of unfinished Puts.
func (s *Store) Sweep(ctx context.Context, prefix string, olderThan time.Duration) (int, error) {
	return s.inner.Sweep(ctx, prefix, olderThan)
}

// checkKey rejects the names of encrypted objects.
func checkKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if strings.HasSuffix(key, suffix) {
		return fmt.Errorf("%w: key %q: %s is the suffix of encrypted objects: remove it", store.ErrInvalid, key, suffix)
	}
	return store.CheckKey(encryptedName(key))
}
