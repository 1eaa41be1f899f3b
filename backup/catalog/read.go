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

// Read lists the objects below prefix and reads the bootstrap record of each lineage. prefix has no slash at its ends;
// the empty prefix is the root of the store. An empty store gives an empty catalog.
func Read(ctx context.Context, s store.Store, prefix string) (Catalog, error) {
	c, unread, err := Survey(ctx, s, prefix)
	if err = errors.Join(err, unread); err != nil {
		return Catalog{}, err
	}
	return c, nil
}

// Survey is Read for those who make backups. If the store has a bootstrap record but does not deliver it, only its
// lineage is affected: its bootstrap is unknown, and unread names the record and the cause. While unread is not nil,
// delete nothing and plan no restore, because the lineage may belong to this cluster. If the store does not respond,
// Survey returns err.
func Survey(ctx context.Context, s store.Store, prefix string) (c Catalog, unread, err error) {
	b := catalogBuilder{c: Catalog{Prefix: prefix}, bootstraps: map[Lineage]time.Time{}}
	for object, err := range s.List(ctx, join(prefix, "")) {
		if err != nil {
			return Catalog{}, nil, fmt.Errorf("read the catalog of backups: %w", store.Because(ctx, err))
		}
		b.c.Newest = later(b.c.Newest, object.Modified)
		b.add(object)
	}
	for i := range b.c.Histories {
		h := &b.c.Histories[i]
		modified, found := b.bootstraps[h.Lineage]
		if !found {
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
			unread = errors.Join(unread, fmt.Errorf("read the record of lineage %s: %w", h.Lineage, err))
		case err != nil:
			return Catalog{}, nil, fmt.Errorf("read the catalog of backups: %w", store.Because(ctx, err))
		default:
			formation.Created = notAfter(formation.Created, modified)
			h.Formation = &formation
		}
	}
	return b.c.sorted(), unread, nil
}

// Refused reports whether the store responded that it has an object but cannot deliver it: it is archived, damaged,
// encrypted with a missing key, or of a newer format. Other objects may still be readable.
func Refused(err error) bool {
	return errors.Is(err, store.ErrForbidden) || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNoKey) ||
		errors.Is(err, store.ErrNewer) || errors.Is(err, syscall.EIO)
}

// clockSkew is the largest difference between the clocks of an agent and the store that is not an error. S3 rejects
// requests whose time differs by more than 15 minutes from its own (RequestTimeTooSkewed).
const clockSkew = 15 * time.Minute

// oldest is the earliest time at which a store can have a backup of druid. Some archivers write files with an earlier
// time, which says nothing about when the backup was made.
var oldest = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// notAfter returns the time in the name of an object. If the store had the object earlier, the clock of the writer was
// ahead, and notAfter returns the time of the store, which is an upper bound. Without that, the object would hide
// everything that was saved after it until that time has come.
func notAfter(said, modified time.Time) time.Time {
	if modified.Before(oldest) || !said.After(modified.Add(clockSkew)) {
		return said
	}
	return modified
}

type catalogBuilder struct {
	c Catalog
	// bootstraps has the lineages with a bootstrap record, and when the store had it.
	bootstraps map[Lineage]time.Time
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
		b.bootstraps[l] = object.Modified
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

// sorted returns a copy of c in which all lists are sorted.
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

// BootstrapVersion is the version of the bootstrap record that this package writes and reads.
const BootstrapVersion = 1

// maxBootstrap limits the size of a bootstrap record, in bytes.
const maxBootstrap = 64 << 10

// Formation is the content of lineage.json, which records how a lineage began. It is written before the cluster serves
// and never changes.
type Formation struct {
	Version int     `json:"version"`
	Lineage Lineage `json:"lineage"`
	// Parent is the lineage from which this one forked. It is empty for a cluster that began without data.
	Parent Lineage `json:"parent,omitempty"`
	// Fork is the last revision of the parent that belongs to this history; 0 without a parent.
	Fork int64 `json:"fork,omitempty"`
	// Reason is a keyword: bootstrap, restore, and so on.
	Reason string `json:"reason,omitempty"`
	// File is the key of the `etcdctl snapshot save` file from which a cluster without a parent was restored. It is
	// empty for all others.
	File string `json:"file,omitempty"`
	// ClusterID is that of etcd, in hexadecimal. ClusterUID is that of the EtcdCluster.
	ClusterID   string `json:"clusterID,omitempty"`
	ClusterUID  string `json:"clusterUID,omitempty"`
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// Created is the time of the bootstrap by the clock of the writer. In a catalog, it is when the store had the record, where that clock
	// was ahead.
	Created time.Time `json:"created"`
}

// problem explains why b cannot be the bootstrap record of l. It is empty if b is valid.
func (b Formation) problem(l Lineage) string {
	switch {
	case b.Version != BootstrapVersion:
		return fmt.Sprintf("it has version %d, but this program supports version %d", b.Version, BootstrapVersion)
	case b.Lineage != l:
		return fmt.Sprintf("it is the record of another lineage, %q", b.Lineage)
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

// sameAs compares what identifies the history. It ignores reason, version of etcd and time, which can differ when the
// record is written again after a crash.
func (b Formation) sameAs(other Formation) bool {
	return b.Lineage == other.Lineage && b.Parent == other.Parent && b.Fork == other.Fork &&
		b.ClusterID == other.ClusterID && b.ClusterUID == other.ClusterUID
}

// ErrBootstrap means that a bootstrap record is invalid or is that of another bootstrap.
var ErrBootstrap = errors.New("record of a lineage's bootstrap")

// WriteBootstrap writes a bootstrap record once. If the store already has a record of the same bootstrap, that is
// success. A record of another bootstrap is an ErrBootstrap, and WriteBootstrap does not change it.
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
		return fmt.Errorf("%w: %s reports another bootstrap (parent %q, fork %d, cluster %s of %q) than this one (parent %q, fork %d, cluster %s "+
			"of %q): two clusters use the same prefix of the store; give each cluster its own prefix",
			ErrBootstrap, BootstrapKey(prefix, b.Lineage), there.Parent, there.Fork, there.ClusterID, there.ClusterUID, b.Parent, b.Fork, b.ClusterID, b.ClusterUID)
	}
	return nil
}

// ReadBootstrap reads the bootstrap record of a lineage. store.ErrAbsent means that there is none, store.ErrNewer that
// a newer version of druid wrote it, ErrBootstrap that it is invalid.
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
		return Formation{}, fmt.Errorf("%s has version %d, but this program reads versions up to %d: %w", key, format.Version, BootstrapVersion, store.ErrNewer)
	}
	if err := json.Unmarshal(content, &b); err != nil {
		return Formation{}, fmt.Errorf("%w: %s: %w", ErrBootstrap, key, err)
	}
	if problem := b.problem(l); problem != "" {
		return Formation{}, fmt.Errorf("%w: %s: %s", ErrBootstrap, key, problem)
	}
	return b, nil
}
