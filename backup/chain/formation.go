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

// BirthVersion is the version of a bootstrap's record that this package writes and reads.
const BootstrapVersion = 1

// maxBirth bounds what is read of a record, in bytes.
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

// ErrBirth means that a lineage's record cannot be understood, or reports another bootstrap.
var ErrBootstrap = errors.New("record of a lineage's bootstrap")

// WriteBootstrap puts the record of a bootstrap, once: a record of the same bootstrap that is there already is success, one of
// another bootstrap an ErrBirth, and is left as it is.
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
		return fmt.Errorf("%w: %s reports another bootstrap (parent %q, fork %d, cluster %s of %q) than this one (parent %q, fork %d, cluster %s of %q): two clusters use one place in the store; give each its own prefix",
			ErrBootstrap, BootstrapKey(prefix, b.Lineage), there.Parent, there.Fork, there.ClusterID, there.ClusterUID, b.Parent, b.Fork, b.ClusterID, b.ClusterUID)
	}
	return nil
}

// ReadBootstrap reads the record of a lineage's bootstrap. The store's ErrAbsent means that there is none, its ErrNewer that a newer
// program wrote it, ErrBirth that it cannot be understood.
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
