package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// BirthVersion is the version of a birth's record that this package writes and reads.
const BirthVersion = 1

// maxBirth bounds what is read of a record, in bytes.
const maxBirth = 64 << 10

// Birth is how a lineage began: the content of lineage.json, which is written before the cluster serves, and never changed.
type Birth struct {
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

// problem says why b cannot be the birth of l; empty means that it can.
func (b Birth) problem(l Lineage) string {
	switch {
	case b.Version != BirthVersion:
		return fmt.Sprintf("it has version %d, and version %d is known here", b.Version, BirthVersion)
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

// sameAs compares what makes the history. Reason, version of etcd and time are the first writer's to tell: who writes the
// record again after a crash may have others.
func (b Birth) sameAs(other Birth) bool {
	return b.Lineage == other.Lineage && b.Parent == other.Parent && b.Fork == other.Fork &&
		b.ClusterID == other.ClusterID && b.ClusterUID == other.ClusterUID
}

// ErrBirth means that a lineage's record cannot be understood, or tells another birth.
var ErrBirth = errors.New("record of a lineage's birth")

// WriteBirth puts the record of a birth, once: a record of the same birth that is there already is success, one of
// another birth an ErrBirth, and is left as it is.
func WriteBirth(ctx context.Context, s store.Store, prefix string, b Birth) error {
	if b.Version == 0 {
		b.Version = BirthVersion
	}
	if problem := b.problem(b.Lineage); problem != "" {
		return fmt.Errorf("%w: %s: %s", ErrBirth, b.Lineage, problem)
	}
	if _, err := ParseLineage(string(b.Lineage)); err != nil {
		return fmt.Errorf("%w: %w", ErrBirth, err)
	}
	content, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", BirthKey(prefix, b.Lineage), err)
	}
	_, err = s.Put(ctx, BirthKey(prefix, b.Lineage), bytes.NewReader(append(content, '\n')), store.PutOptions{IfAbsent: true})
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	there, err := ReadBirth(ctx, s, prefix, b.Lineage)
	if err != nil {
		return err
	}
	if !there.sameAs(b) {
		return fmt.Errorf("%w: %s tells another birth (parent %q, fork %d, cluster %s of %q) than this one (parent %q, fork %d, cluster %s of %q): two clusters use one place in the store; give each its own prefix",
			ErrBirth, BirthKey(prefix, b.Lineage), there.Parent, there.Fork, there.ClusterID, there.ClusterUID, b.Parent, b.Fork, b.ClusterID, b.ClusterUID)
	}
	return nil
}

// ReadBirth reads the record of a lineage's birth. The store's ErrAbsent means that there is none, its ErrNewer that a newer
// program wrote it, ErrBirth that it cannot be understood.
func ReadBirth(ctx context.Context, s store.Store, prefix string, l Lineage) (b Birth, err error) {
	key := BirthKey(prefix, l)
	r, err := s.Get(ctx, key, 0, maxBirth)
	if err != nil {
		return Birth{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	content, err := io.ReadAll(r)
	if err != nil {
		return Birth{}, err
	}
	var format struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &format); err == nil && format.Version > BirthVersion {
		return Birth{}, fmt.Errorf("%s has version %d, and this program reads up to %d: %w", key, format.Version, BirthVersion, store.ErrNewer)
	}
	if err := json.Unmarshal(content, &b); err != nil {
		return Birth{}, fmt.Errorf("%w: %s: %w", ErrBirth, key, err)
	}
	if problem := b.problem(l); problem != "" {
		return Birth{}, fmt.Errorf("%w: %s: %s", ErrBirth, key, problem)
	}
	return b, nil
}
