package restore

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
)

// DefaultBump is the value that the documentation of etcdutl recommends to add to the revision, so that no client has
// seen a later one.
const DefaultBump = 1_000_000_000

// Config describes what to restore, and for which member of which cluster.
type Config struct {
	Store store.Store
	Plan  catalog.Plan
	// File is a file of `etcdctl snapshot save`, as it was listed. If its key is set, it is restored instead of Plan.
	File store.Object
	// DataDir is etcd's --data-dir. It must not exist, or be empty, and may not be a mount point: what is restored is made
	// next to it, in DataDir + ".restoring", and renamed.
	DataDir string
	// Name of the member, its PeerURLs, InitialCluster and Token are as in the flags of etcd: --name,
	// --initial-advertise-peer-urls, --initial-cluster and --initial-cluster-token. Never use a token twice.
	Name           string
	PeerURLs       []string
	InitialCluster string
	Token          string
	// EtcdVersion is the version of the etcd that will run on the data, as major.minor or longer.
	EtcdVersion string
	// Bump is added to the revision, and everything before is marked as compacted. Clients that have seen more of the
	// old history then start again instead of missing changes. Only the last record of each key that is alive is
	// written, because etcd drops the others when it starts. 0 keeps the revision and writes the complete history.
	Bump int64
	// ClearAlarms removes the alarms NOSPACE. With such an alarm in the backup, the cluster would be read-only.
	// CORRUPT stays, because it is about the data that is restored.
	ClearAlarms bool
	// Quota is that of the etcd that will run on the data, in bytes. A larger database is rejected, because etcd would
	// refuse writes. So is a File with a larger database. 0 means no check.
	Quota int64
	// Auth says what happens with data in which authentication is on.
	Auth AuthData
	// Progress receives the progress, at most a few times per second on a fast disk. It may be nil and must not block.
	Progress func(Progress)
}

// AuthData says what happens with data in which authentication is on.
type AuthData uint8

// What happens.
const (
	// KeepAuth restores it as it is.
	KeepAuth AuthData = iota
	// RefuseAuth rejects it with ErrAuth.
	RefuseAuth
	// AdmitAgent restores it, and gives the user druid-agent the role root, so that the agents can manage the users in it.
	AdmitAgent
)

// Phase of a restore.
type Phase string

// The phases, in their order.
const (
	// Fetching: the full backup is streamed to disk.
	Fetching Phase = "fetching"
	// Applying: the delta backups are appended. If only what is alive is written, there are two phases instead:
	// Surveying, which reads the full backup and the delta backups, and Writing.
	Applying  Phase = "applying"
	Surveying Phase = "surveying"
	Writing   Phase = "writing"
	// Finishing: the written data is made durable.
	Finishing Phase = "finishing"
)

// Progress of a restore.
type Progress struct {
	Phase Phase
	// Bytes of the database that are written, of TotalBytes.
	Bytes, TotalBytes int64
	// Deltas that were applied, of TotalDeltas, and the events in them so far.
	Deltas, TotalDeltas int
	Events              int64
	// DeltaBytes are the sizes of those delta backups in the store, of TotalDeltaBytes.
	DeltaBytes, TotalDeltaBytes int64
	// Revision that is reached.
	Revision int64
}

// Result is a restored data directory.
type Result struct {
	// Revision of the restored key space. Bumped is the revision from which etcd will start.
	Revision, Bumped int64
	// ClusterID and MemberID are the IDs that etcd will have.
	ClusterID, MemberID uint64
	// Events that were applied, from Deltas delta backups.
	Events int64
	Deltas int
	// Keys is the number of keys that are alive, if only these were written.
	Keys int64
	// Trimmed is the number of records that were removed from the full backup because they were written after the
	// target.
	Trimmed int64
	// Leases is the number of added leases: keys refer to them, but the full backup does not have them. Guessed is how
	// many of them have an unknown time to live.
	Leases, Guessed int
	// Checkpoints that the delta backups hold for restored revisions, in the order of the delta backups.
	Checkpoints []Checkpoint
	// Size of the database in bytes.
	Size int64
}

// Checkpoint is a state that etcd reported. Object is the key of the delta backup that records it.
type Checkpoint struct {
	Object string
	delta.Checkpoint
	// Alive are the leases that etcd had at that time. It is nil if the delta backup does not record them.
	Alive []int64
}

func (c *Config) validate() error {
	if c.Store == nil || (c.Plan.Full.Key == "") == (c.File.Key == "") {
		return errors.New("restore: want Store, and either Plan or File")
	}
	return c.validateTarget()
}

// validateTarget checks what does not depend on the source.
func (c *Config) validateTarget() error {
	switch {
	case !filepath.IsAbs(c.DataDir) || filepath.Dir(c.DataDir) == c.DataDir:
		return fmt.Errorf("restore: data directory %q: want an absolute path", c.DataDir)
	case c.Name == "" || c.Token == "" || c.InitialCluster == "":
		return fmt.Errorf("restore: name %q, token %q and initial cluster %q must not be empty", c.Name, c.Token, c.InitialCluster)
	case c.Bump < 0:
		return fmt.Errorf("restore: bump of %d, want 0 or more", c.Bump)
	}
	return nil
}

// origin returns the source of the database: the full backup of the plan, or the file.
func (c *Config) origin() (key string, size int64) {
	if c.File.Key != "" {
		return c.File.Key, c.File.Size
	}
	return c.Plan.Full.Key, c.Plan.Full.Size
}

// Subject describes the origin.
func (c *Config) Subject() string {
	key, _ := c.origin()
	if c.File.Key != "" {
		return "file " + key
	}
	return "full " + key
}

// paceAfter is how long a phase runs before a speed is reported.
const paceAfter = time.Second

// Pace computes the speed of a restore from its progress. It computes the speed of each phase separately, because the
// duration of later phases is unknown. The zero Pace is ready to use.
type Pace struct {
	first Progress
	began time.Time
}

// Speed of a phase.
type Speed struct {
	// Part is the fraction of the phase that is done, from 0 to 1.
	Part float64
	// PerSecond is in bytes of the database in the phases that fetch or write it, and in events in the phases that
	// read or apply them. 0 means not yet known.
	PerSecond float64
	// Left is how long the phase will still take at this speed. known reports whether that is known.
	Left  time.Duration
	Known bool
}

// Observe takes a progress and its time.
func (p *Pace) Observe(at Progress, now time.Time) Speed {
	if at.Phase != p.first.Phase || p.began.IsZero() {
		p.first, p.began = at, now
	}
	s := Speed{Part: at.part()}
	took := now.Sub(p.began)
	if took < paceAfter {
		return s
	}
	switch at.Phase {
	case Fetching:
		s.PerSecond = float64(at.Bytes-p.first.Bytes) / took.Seconds()
	case Applying, Surveying:
		s.PerSecond = float64(at.Events-p.first.Events) / took.Seconds()
	case Writing:
		s.PerSecond = float64(at.Bytes-p.first.Bytes) / took.Seconds()
	case Finishing:
	}
	if gained := s.Part - p.first.part(); gained > 0 {
		s.Left, s.Known = time.Duration(float64(took)*(1-s.Part)/gained).Round(time.Second), true
	}
	return s
}

// part returns the fraction of the phase that is done.
func (p Progress) part() float64 {
	part := func(n, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return min(1, float64(n)/float64(of))
	}
	switch p.Phase {
	case Fetching, Writing:
		return part(p.Bytes, p.TotalBytes)
	case Applying, Surveying:
		return part(p.DeltaBytes, p.TotalDeltaBytes)
	case Finishing:
	}
	return 1
}

// Words describes the progress of a restore, its speed and the end of the phase, or that these are unknown.
func (s Speed) Words(at Progress) string {
	left := "remaining time unknown"
	if s.Known {
		left = fmt.Sprintf("about %s remaining", s.Left)
	}
	switch at.Phase {
	case Fetching:
		return fmt.Sprintf("full backup: %d of %d MiB, %s, %s; %d delta backups follow", at.Bytes>>20, at.TotalBytes>>20,
			s.rate("%.1f MiB/s", 1<<20), left, at.TotalDeltas)
	case Applying:
		return fmt.Sprintf("delta backups: %d of %d, %d events, %s, revision %d, %s", at.Deltas, at.TotalDeltas, at.Events,
			s.rate("%.0f events/s", 1), at.Revision, left)
	case Surveying:
		return fmt.Sprintf("delta backups: read %d of %d, %d events, %s, revision %d, %s", at.Deltas, at.TotalDeltas, at.Events,
			s.rate("%.0f events/s", 1), at.Revision, left)
	case Writing:
		return fmt.Sprintf("live keys: wrote %d of %d MiB, %s, %s", at.Bytes>>20, at.TotalBytes>>20, s.rate("%.1f MiB/s", 1<<20), left)
	case Finishing:
	}
	return fmt.Sprintf("reached revision %d, making the data durable, %s", at.Revision, left)
}

func (s Speed) rate(format string, unit float64) string {
	if s.PerSecond == 0 {
		return "rate unknown"
	}
	return fmt.Sprintf(format, s.PerSecond/unit)
}
