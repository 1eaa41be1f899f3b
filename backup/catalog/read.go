package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// Read lists what is below prefix, and reads the record of each lineage's bootstrap. prefix has no slash at its ends; the
// empty one is the store itself. A store that holds nothing there gives an empty catalog.
func Read(ctx context.Context, s store.Store, prefix string) (Catalog, error) {
	c, unread, err := Survey(ctx, s, prefix)
	if err = errors.Join(err, unread); err != nil {
		return Catalog{}, err
	}
	return c, nil
}

// Survey is Read for anyone who saves: a record that the store has and does not give is a matter of its lineage. Its bootstrap is unknown
// then, and unread says which records these are and why. While it is not nil, nothing may be deleted, and no restore planned: such a
// lineage may be of this cluster. Where the store does not answer, that is err.
func Survey(ctx context.Context, s store.Store, prefix string) (c Catalog, unread, err error) {
	b := catalogBuilder{c: Catalog{Prefix: prefix}, bootstraps: map[Lineage]bool{}}
	for object, err := range s.List(ctx, join(prefix, "")) {
		if err != nil {
			return Catalog{}, nil, fmt.Errorf("read the catalog of backups: %w", store.Because(ctx, err))
		}
		b.c.Newest = later(b.c.Newest, object.Modified)
		b.add(object)
	}
	for i := range b.c.Histories {
		h := &b.c.Histories[i]
		if !b.bootstraps[h.Lineage] {
			h.BootstrapProblem = "there is no " + BootstrapKey(prefix, h.Lineage)
			continue
		}
		formation, err := ReadBootstrap(ctx, s, prefix, h.Lineage)
		store.Progressed(ctx) // of many lineages too
		switch {
		case errors.Is(err, ErrBootstrap), errors.Is(err, store.ErrAbsent):
			h.BootstrapProblem = err.Error()
		case Refused(err):
			h.BootstrapProblem = err.Error()
			unread = errors.Join(unread, fmt.Errorf("the record of lineage %s cannot be read: %w", h.Lineage, err))
		case err != nil:
			return Catalog{}, nil, fmt.Errorf("read the catalog of backups: %w", store.Because(ctx, err))
		default:
			h.Formation = &formation
		}
	}
	return b.c.sorted(), unread, nil
}

// Refused says whether the store answered, of an object that is there, that it does not give it: it is archived, damaged, sealed
// with a key that is missing, or of a newer format. Another object may be read all the same. An error that says nothing of the object is none.
func Refused(err error) bool {
	return errors.Is(err, store.ErrForbidden) || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNoKey) ||
		errors.Is(err, store.ErrNewer) || errors.Is(err, syscall.EIO)
}

// clockSkew is how far the clock of an agent may be from the store's before one of them is taken for wrong. S3 refuses requests whose time
// differs by more than 15 minutes from its own (RequestTimeTooSkewed).
const clockSkew = 15 * time.Minute

// oldest is when a store can have had a backup of ours at the earliest. A directory whose files bear an earlier time, as some archivers write
// it, says nothing of when they came.
var oldest = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// notAfter is the time that the name of an object says, unless the store had the object before: then the clock of who wrote it was ahead, and
// the store's time is the latest that it can be of. Else one such object would hide all that was saved after it, until that time has come.
func notAfter(said, modified time.Time) time.Time {
	if modified.Before(oldest) || !said.After(modified.Add(clockSkew)) {
		return said
	}
	return modified
}

type catalogBuilder struct {
	c          Catalog
	bootstraps map[Lineage]bool
}

func (b *catalogBuilder) add(object store.Object) {
	if f, ok := ParseFull(b.c.Prefix, object.Key); ok {
		f.Size, f.At = object.Size, notAfter(f.At, object.Modified)
		h := b.history(f.Lineage)
		h.Fulls = append(h.Fulls, f)
		return
	}
	if d, ok := ParseDelta(b.c.Prefix, object.Key); ok {
		d.Size, d.At = object.Size, notAfter(d.At, object.Modified)
		h := b.history(d.Lineage)
		h.Deltas = append(h.Deltas, d)
		return
	}
	l, rest, ok := split(b.c.Prefix, object.Key)
	switch {
	case !ok:
		b.c.UnknownObjects = append(b.c.UnknownObjects, object.Key)
	case rest == bootstrapName:
		b.history(l)
		b.bootstraps[l] = true
	default:
		h := b.history(l)
		h.UnknownObjects = append(h.UnknownObjects, object.Key)
	}
}

func (b *catalogBuilder) history(l Lineage) *History {
	i := slices.IndexFunc(b.c.Histories, func(h History) bool { return h.Lineage == l })
	if i < 0 {
		i = len(b.c.Histories)
		b.c.Histories = append(b.c.Histories, History{Lineage: l})
	}
	return &b.c.Histories[i]
}

// sorted is a copy of c in which everything stands in its order.
func (c Catalog) sorted() Catalog {
	c.Histories = slices.SortedFunc(slices.Values(c.Histories), func(a, b History) int { return a.Lineage.Compare(b.Lineage) })
	for i, h := range c.Histories {
		c.Histories[i].Fulls = inOrder(h.Fulls, compareFulls)
		c.Histories[i].Deltas = inOrder(h.Deltas, compareDeltas)
		c.Histories[i].UnknownObjects = inOrder(h.UnknownObjects, cmp.Compare)
	}
	c.UnknownObjects = inOrder(c.UnknownObjects, cmp.Compare)
	return c
}

// BootstrapVersion is the version of a bootstrap's record that this package writes and reads.
const BootstrapVersion = 1

// maxBootstrap bounds what is read of a record, in bytes.
const maxBootstrap = 64 << 10

// Formation is how a lineage began: the content of lineage.json, which is written before the cluster serves, and never changed.
type Formation struct {
	Version int     `json:"version"`
	Lineage Lineage `json:"lineage"`
	// Parent is the lineage that this one forked from; empty for a cluster that began with nothing.
	Parent Lineage `json:"parent,omitempty"`
	// Fork is the last revision of the parent that counts in this history; 0 without a parent.
	Fork int64 `json:"fork,omitempty"`
	// Reason is a word for why: bootstrap, restore, and so on.
	Reason string `json:"reason,omitempty"`
	// File is the key of the file of `etcdctl snapshot save` that a cluster without a parent was restored from; empty for all others.
	File string `json:"file,omitempty"`
	// ClusterID is etcd's, in hexadecimal. ClusterUID is the Kubernetes object's.
	ClusterID   string `json:"clusterID,omitempty"`
	ClusterUID  string `json:"clusterUID,omitempty"`
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// Created is when, by the clock of who wrote it.
	Created time.Time `json:"created"`
}

// problem says why b cannot be the bootstrap of l; empty means that it can.
func (b Formation) problem(l Lineage) string {
	switch {
	case b.Version != BootstrapVersion:
		return fmt.Sprintf("it has version %d, and version %d is known here", b.Version, BootstrapVersion)
	case b.Lineage != l:
		return fmt.Sprintf("it is the record of lineage %q", b.Lineage)
	case b.Parent == "" && b.Fork != 0, b.Fork < 0:
		return fmt.Sprintf("it forks at revision %d of parent %q", b.Fork, b.Parent)
	case b.Parent == b.Lineage:
		return "it is its own parent"
	}
	if b.Parent != "" {
		if _, err := ParseLineage(string(b.Parent)); err != nil {
			return "its parent: " + err.Error()
		}
	}
	return ""
}

// sameAs compares what makes the history. Reason, version of etcd and time are the first writer's to report: who writes the
// record again after a crash may have others.
func (b Formation) sameAs(other Formation) bool {
	return b.Lineage == other.Lineage && b.Parent == other.Parent && b.Fork == other.Fork &&
		b.ClusterID == other.ClusterID && b.ClusterUID == other.ClusterUID
}

// ErrBootstrap means that a lineage's record cannot be understood, or reports another bootstrap.
var ErrBootstrap = errors.New("record of a lineage's bootstrap")

// WriteBootstrap puts the record of a bootstrap, once: a record of the same bootstrap that is there already is success, one of
// another bootstrap an ErrBootstrap, and is left as it is.
func WriteBootstrap(ctx context.Context, s store.Store, prefix string, b Formation) error {
	if b.Version == 0 {
		b.Version = BootstrapVersion
	}
	if problem := b.problem(b.Lineage); problem != "" {
		return fmt.Errorf("%w: %s: %s", ErrBootstrap, b.Lineage, problem)
	}
	if _, err := ParseLineage(string(b.Lineage)); err != nil {
		return fmt.Errorf("%w: %w", ErrBootstrap, err)
	}
	content, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", BootstrapKey(prefix, b.Lineage), err)
	}
	_, err = s.Put(ctx, BootstrapKey(prefix, b.Lineage), bytes.NewReader(append(content, '\n')), store.PutOptions{IfAbsent: true})
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	there, err := ReadBootstrap(ctx, s, prefix, b.Lineage)
	if err != nil {
		return err
	}
	if !there.sameAs(b) {
		return fmt.Errorf("%w: %s reports another bootstrap (parent %q, fork %d, cluster %s of %q) than this one (parent %q, fork %d, cluster %s of %q): two clusters use one place in the store; give each cluster its own prefix",
			ErrBootstrap, BootstrapKey(prefix, b.Lineage), there.Parent, there.Fork, there.ClusterID, there.ClusterUID, b.Parent, b.Fork, b.ClusterID, b.ClusterUID)
	}
	return nil
}

// ReadBootstrap reads the record of a lineage's bootstrap. The store's ErrAbsent means that there is none, its ErrNewer that a newer
// program wrote it, ErrBootstrap that it cannot be understood.
func ReadBootstrap(ctx context.Context, s store.Store, prefix string, l Lineage) (b Formation, err error) {
	key := BootstrapKey(prefix, l)
	r, err := s.Get(ctx, key, 0, maxBootstrap)
	if err != nil {
		return Formation{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	content, err := io.ReadAll(r)
	if err != nil {
		return Formation{}, err
	}
	var format struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &format); err == nil && format.Version > BootstrapVersion {
		return Formation{}, fmt.Errorf("%s has version %d, and this program reads up to %d: %w", key, format.Version, BootstrapVersion, store.ErrNewer)
	}
	if err := json.Unmarshal(content, &b); err != nil {
		return Formation{}, fmt.Errorf("%w: %s: %w", ErrBootstrap, key, err)
	}
	if problem := b.problem(l); problem != "" {
		return Formation{}, fmt.Errorf("%w: %s: %s", ErrBootstrap, key, problem)
	}
	return b, nil
}
