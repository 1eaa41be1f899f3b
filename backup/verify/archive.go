package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
)

// Place is a prefix of a store that has the backups of one cluster.
type Place struct {
	Store  store.Store
	Prefix string
}

// Copied reports an object that both places have with equal content.
type Copied struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	// Present reports whether the target had the object before.
	Present bool `json:"present"`
}

// ErrDiffers means that the target has an object of the same name with other content. Copy changes neither.
var ErrDiffers = errors.New("another object has this name")

// Copy copies all objects that c, a catalog of from, knows, oldest first. If it stops early, the target has an
// unbroken sequence, and the next Copy continues. It reads each copy back and compares the sha256 with the original,
// also if the target had the object before. It reports each object that the target has.
func Copy(ctx context.Context, from, to Place, c catalog.Catalog, inform func(Copied) error) error {
	for _, h := range c.Histories {
		var keys []string
		if h.Formation != nil {
			keys = append(keys, catalog.BootstrapKey(c.Prefix, h.Lineage))
		}
		for _, o := range objectsOf(h) {
			keys = append(keys, o.key)
		}
		for _, key := range keys {
			copied, err := copyObject(ctx, from, to, key)
			if err != nil {
				return err
			}
			if err := inform(copied); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyObject(ctx context.Context, from, to Place, key string) (Copied, error) {
	target := strings.TrimPrefix(strings.TrimPrefix(key, from.Prefix), "/")
	if to.Prefix != "" {
		target = to.Prefix + "/" + target
	}
	sent, err := put(ctx, from.Store, to.Store, key, target)
	present := errors.Is(err, store.ErrExists)
	if err != nil && !present {
		return Copied{}, err
	}
	if present {
		if sent, err = digest(ctx, from.Store, key); err != nil {
			return Copied{}, err
		}
	}
	there, err := digest(ctx, to.Store, target)
	if err != nil {
		return Copied{}, fmt.Errorf("read back: %w", err)
	}
	switch {
	case sent == there:
		return Copied{Key: target, Size: there.size, Present: present}, nil
	case present:
		return Copied{}, fmt.Errorf("copy %s to %s: %w: the target has %d bytes with sha256 %x, the original %d with %x; move the target away, or "+
			"copy to another prefix",
			key, target, ErrDiffers, there.size, there.sum, sent.size, sent.sum)
	}
	return Copied{}, fmt.Errorf("copy %s to %s: %w: read %d bytes with sha256 %x from the original, but %d with %x from the copy; delete the "+
		"copy and check proxies, disks and memory",
		key, target, store.ErrDamaged, sent.size, sent.sum, there.size, there.sum)
}

// content is what equal objects have in common.
type content struct {
	size int64
	sum  [sha256.Size]byte
}

// put streams an object from one store to the other.
func put(ctx context.Context, from, to store.Store, key, target string) (c content, err error) {
	r, err := from.Get(ctx, key, 0, -1)
	if err != nil {
		return content{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	o, err := to.Put(ctx, target, io.TeeReader(r, sum), store.PutOptions{IfAbsent: true})
	return content{size: o.Size, sum: [sha256.Size]byte(sum.Sum(nil))}, err
}

func digest(ctx context.Context, s store.Store, key string) (c content, err error) {
	r, err := s.Get(ctx, key, 0, -1)
	if err != nil {
		return content{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	return content{size: n, sum: [sha256.Size]byte(sum.Sum(nil))}, err
}

// object is a full backup or a delta backup.
type object struct {
	key  string
	size int64
	// revision is the first revision of a delta backup, or the revision of a full backup.
	revision int64
	full     *catalog.Full
	delta    *catalog.Delta
}

// objectsOf returns the objects of a history, oldest first. Each prefix of the list is an unbroken sequence.
func objectsOf(h catalog.History) []object {
	objects := make([]object, 0, len(h.Fulls)+len(h.Deltas))
	for _, f := range h.Fulls {
		objects = append(objects, object{key: f.Key, size: f.Size, revision: f.Revision, full: &f})
	}
	for i, d := range h.Deltas {
		objects = append(objects, object{key: d.Key, size: d.Size, revision: d.From, delta: &h.Deltas[i]})
	}
	slices.SortStableFunc(objects, func(a, b object) int { return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.key, b.key)) })
	return objects
}

// Collected is the result for an object that retention does not keep.
type Collected struct {
	catalog.Verdict
	// Locked objects stay until their lock ends. The next collection finds them again.
	Locked bool
}

// Collect lists the objects below prefix and deletes those that retention does not keep, oldest first. It deletes in
// the family of l, or in each family if l is empty. It reports each object after it was deleted or found to be locked.
// It stops at any other error; what it deleted before was superfluous anyway.
func Collect(ctx context.Context, s store.Store, prefix string, l catalog.Lineage, p catalog.Policy, e catalog.Evidence, now time.Time,
	inform func(Collected) error) error {
	if err := p.Validate(); err != nil {
		return err
	}
	c, err := catalog.Read(ctx, s, prefix)
	if err != nil {
		return err
	}
	for _, v := range c.Retain(l, p, e, now) {
		if v.Keep {
			continue
		}
		err := s.Delete(ctx, v.Key)
		locked := errors.Is(err, store.ErrLocked)
		if err != nil && !locked {
			return err
		}
		if err := inform(Collected{Verdict: v, Locked: locked}); err != nil {
			return err
		}
	}
	return nil
}
