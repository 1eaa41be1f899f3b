package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/crash"
)

// The versions of the identity file that this build reads. A file with a later version is rejected. An agent that cannot
// read recovery orders reads only the first version. So it does not start etcd on a volume that acknowledges an order.
const (
	identityFileVersion         = 1
	preparedIdentityFileVersion = 2
)

// IdentityFile is the content of the identity file: to whom the data on the volume belongs. It is written before etcd
// first starts on the data. An agent did not create data without one.
type IdentityFile struct {
	Version int `json:"version"`
	// Cluster is the UID of the EtcdCluster. ClusterID and MemberID are etcd's IDs in hexadecimal.
	Cluster   string `json:"cluster"`
	ClusterID ID     `json:"clusterID"`
	MemberID  ID     `json:"memberID"`
	// Member is the member's name.
	Member string `json:"member"`
	// Epoch, Lineage and Token of the raft group's bootstrap.
	Epoch   uint32 `json:"epoch"`
	Lineage string `json:"lineage"`
	Token   string `json:"token"`
	// LeaseUID and VolumeUID are the UIDs of the member Lease and the PersistentVolumeClaim.
	LeaseUID  string `json:"leaseUID"`
	VolumeUID string `json:"volumeUID"`
	// MaxLearners is the constant limit of the raft group. A member can resume with it without reading it elsewhere.
	MaxLearners int `json:"maxLearners"`
	// Parent is the lineage from which the data of the raft group came, Fork is the last revision from it, and Forked is when
	// the data was built. All are absent in a group that began empty. A member that joins copies them from the cluster record.
	Parent string    `json:"parent,omitempty"`
	Fork   int64     `json:"fork,omitempty"`
	Forked time.Time `json:"forked,omitzero"`
	// File is the key of the `etcdctl snapshot save` file from which the data was restored. Such a file has no
	// lineage. It is absent if Parent is set.
	File string `json:"file,omitempty"`
	// Externals are the IDs of the voters that the raft group had before this cluster joined it, hexadecimal and
	// separated by commas. They are absent in a group that was formed here. A re-created record gets them from here.
	Externals string `json:"externals,omitempty"`
	// PeerScheme is http or https: how etcd last listened to its peers. Without a quorum it listens so again. It is absent in data of
	// an earlier agent.
	PeerScheme string `json:"peerScheme,omitempty"`
	// Prepared is the epoch of the recovery order that the volume acknowledges, 0 for none. It is written before the agent
	// acknowledges the order. etcd starts on the data only if the order is released, or if a quorum lists the member.
	Prepared uint32 `json:"prepared,omitempty"`
	// Formed: the raft group exists for certain, so this data does not come from a lost attempt.
	Formed bool `json:"formed"`
}

// ID is an etcd ID, written in hex as etcd's tools print it.
type ID uint64

// MarshalText writes the ID.
func (id ID) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%x", uint64(id)), nil }

// UnmarshalText reads the ID.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("ID %q is not hexadecimal: %w", text, err)
	}
	*id = ID(parsed)
	return nil
}

var (
	// ErrNoIdentityFile says that the volume has no identity file.
	ErrNoIdentityFile = errors.New("no identity file")
	// ErrBadIdentityFile says that the identity file is invalid.
	ErrBadIdentityFile = errors.New("invalid identity file")
)

// ReadIdentityFile reads the identity file in the root of the volume. It returns ErrNoIdentityFile, ErrBadIdentityFile
// or the error of the disk.
func ReadIdentityFile(dir string) (IdentityFile, error) {
	return readIdentityFile(filepath.Join(dir, volume.IdentityFileName))
}

func readIdentityFile(path string) (IdentityFile, error) {
	var s IdentityFile
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read identity file %s: %w", path, ErrNoIdentityFile)
	}
	if err != nil {
		return s, fmt.Errorf("read identity file: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return IdentityFile{}, fmt.Errorf("read identity file %s: %w: %w", path, ErrBadIdentityFile, err)
	}
	if s.Version != versionOf(s) || s.Cluster == "" {
		return IdentityFile{}, fmt.Errorf("read identity file %s: %w: version %d, cluster %q", path, ErrBadIdentityFile, s.Version, s.Cluster)
	}
	return s, nil
}

// WriteIdentityFile writes the identity file durably, and creates the data directory in which etcd starts.
func WriteIdentityFile(dir string, s IdentityFile) error {
	raw, err := encodeIdentityFile(s)
	if err != nil {
		return err
	}
	crash.Before("make-data-dir")
	err = makeDataDir(dir)
	crash.After("make-data-dir")
	if err != nil {
		return err
	}
	return volume.WriteFile(filepath.Join(dir, volume.IdentityFileName), raw)
}

// versionOf is the version of a file with this content.
func versionOf(s IdentityFile) int {
	if s.Prepared > 0 {
		return preparedIdentityFileVersion
	}
	return identityFileVersion
}

func encodeIdentityFile(s IdentityFile) ([]byte, error) {
	s.Version = versionOf(s)
	if s.Cluster == "" {
		return nil, fmt.Errorf("write identity file of member %s: no cluster UID", s.Member)
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode identity file: %w", err)
	}
	return append(raw, '\n'), nil
}

// WriteBuilt writes the identity file of the data that was built in volume.RestoredPath and is not in use yet.
func WriteBuilt(dir string, s IdentityFile) error {
	raw, err := encodeIdentityFile(s)
	if err != nil {
		return err
	}
	return volume.WriteFile(filepath.Join(volume.RestoredPath(dir), volume.IdentityFileName), raw)
}

// ReadBuilt reads the identity file of built data. It returns ErrNoIdentityFile if there is none.
func ReadBuilt(dir string) (IdentityFile, error) {
	return readIdentityFile(filepath.Join(volume.RestoredPath(dir), volume.IdentityFileName))
}

// dataDirMode is the mode that etcd requires for its data directory. An fsGroup adds bits to it at each mount, and
// etcd logs a warning about them.
const dataDirMode = 0o700

func makeDataDir(dir string) error {
	path := volume.DataPath(dir)
	if err := os.MkdirAll(path, dataDirMode); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	// Chmod with only permission bits also drops the setgid bit that a directory inherits on a volume with fsGroup.
	if err := os.Chmod(path, dataDirMode); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return volume.SyncDir(dir)
}

// PlaceRestored renames the restored data (volume.RestoredPath) to the data directory. Its identity file must be
// written before, because data without one belongs to no member. If the data directory has content, it returns an
// error and changes nothing.
func PlaceRestored(dir string) error {
	data := volume.DataPath(dir)
	// WriteIdentityFile created an empty data directory. Remove deletes only an empty one.
	crash.Before("clear-place")
	err := os.Remove(data)
	crash.After("clear-place")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("place restored data: %w", err)
	}
	crash.Before("place-restored")
	err = os.Rename(volume.RestoredPath(dir), data)
	crash.After("place-restored")
	if err != nil {
		return fmt.Errorf("place restored data: %w", err)
	}
	return volume.SyncDir(dir)
}
