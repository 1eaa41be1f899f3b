package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/crash"
)

// stampVersion of this build. A stamp of a later version is not understood, so it is unlike us.
const identityFileVersion = 1

// Stamp says whose data is on the volume. It is written before etcd first starts on the data, so data without one was
// not put there by an agent.
type IdentityFile struct {
	Version int `json:"version"`
	// Cluster is the EtcdCluster's UID; ClusterID and MemberID are etcd's, written in hex.
	Cluster   string `json:"cluster"`
	ClusterID ID     `json:"clusterID"`
	MemberID  ID     `json:"memberID"`
	// Member is the member's name.
	Member string `json:"member"`
	// Epoch, Lineage and Token of the raft group's bootstrap.
	Epoch   uint32 `json:"epoch"`
	Lineage string `json:"lineage"`
	Token   string `json:"token"`
	// LeaseUID and VolumeUID of the member's Lease and PersistentVolumeClaim.
	LeaseUID  string `json:"leaseUID"`
	VolumeUID string `json:"volumeUID"`
	// MaxLearners is the raft group's constant limit: a member resumes with it also when no one can report it.
	MaxLearners int `json:"maxLearners"`
	// Parent is the lineage that the data was restored from, and Fork the last revision that it has of it. Both are absent
	// from a group that began empty, and from the members that joined.
	Parent string `json:"parent,omitempty"`
	Fork   int64  `json:"fork,omitempty"`
	// File is the key of the file of `etcdctl snapshot save` that the data was restored from, which has no lineage. It is absent
	// where Parent is.
	File string `json:"file,omitempty"`
	// Guests are the IDs, hex and between commas, of the voters that the raft group had before it was joined; absent from one
	// that was formed here. A record that was made again learns them from here.
	Externals string `json:"externals,omitempty"`
	// Formed: the raft group exists for certain, so this data is no left-over of an attempt that was lost.
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
	// ErrNoStamp says that the volume bears no stamp.
	ErrNoIdentityFile = errors.New("no stamp")
	// ErrBadStamp says that there is a stamp which cannot be understood.
	ErrBadIdentityFile = errors.New("stamp cannot be understood")
)

// ReadStamp reads the stamp in the root of the volume: ErrNoStamp, ErrBadStamp, or what the disk answered.
func ReadIdentityFile(dir string) (IdentityFile, error) {
	var s IdentityFile
	path := filepath.Join(dir, volume.IdentityFileName)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read stamp %s: %w", path, ErrNoIdentityFile)
	}
	if err != nil {
		return s, fmt.Errorf("read stamp: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return IdentityFile{}, fmt.Errorf("read stamp %s: %w: %w", path, ErrBadIdentityFile, err)
	}
	if s.Version != identityFileVersion || s.Cluster == "" {
		return IdentityFile{}, fmt.Errorf("read stamp %s: %w: version %d, cluster %q", path, ErrBadIdentityFile, s.Version, s.Cluster)
	}
	return s, nil
}

// WriteStamp puts the stamp onto the volume, durably, and makes the data directory for etcd to start in.
func WriteIdentityFile(dir string, s IdentityFile) error {
	s.Version = identityFileVersion
	if s.Cluster == "" {
		return fmt.Errorf("write stamp of member %s: no cluster UID", s.Member)
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode stamp: %w", err)
	}
	crash.Before("make-data-dir")
	err = makeDataDir(dir)
	crash.After("make-data-dir")
	if err != nil {
		return err
	}
	return volume.WriteFile(filepath.Join(dir, volume.IdentityFileName), append(raw, '\n'))
}

// dataDirMode is what etcd asks of its data directory. An fsGroup adds bits to it at each mount, which etcd warns about.
const dataDirMode = 0o700

func makeDataDir(dir string) error {
	path := volume.DataPath(dir)
	if err := os.MkdirAll(path, dataDirMode); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	// Chmod with only permission bits also drops the setgid bit that a directory inherits on a volume with fsGroup.
	if err := os.Chmod(path, dataDirMode); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	return volume.SyncDir(dir)
}

// PlaceRestored makes what was restored (volume.RestoredPath) the data directory, for good. Its stamp stands already: data
// without one would be no one's. A data directory that has anything in it is an error, and stays.
func PlaceRestored(dir string) error {
	data := volume.DataPath(dir)
	// The stamp made an empty one; nothing but an empty one goes.
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
