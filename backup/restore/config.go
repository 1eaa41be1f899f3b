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

// DefaultBump is what etcdutl's documentation advises to add to the revision, so that no client has seen a later one.
const DefaultBump = 1_000_000_000

// Config says what is restored, and into which member of which cluster.
type Config struct {
	Store store.Store
	Plan  catalog.Plan
	// File, as it was listed, is restored instead of Plan where its key is set: what `etcdctl snapshot save` wrote.
	File store.Object
	// DataDir is etcd's --data-dir. It must not exist, or be empty, and may not be a mount point: what is restored is made
	// next to it, in DataDir + ".restoring", and renamed.
	DataDir string
	// Name of the member, its PeerURLs, InitialCluster and Token as in etcd's flags: --name,
	// --initial-advertise-peer-urls, --initial-cluster and --initial-cluster-token. A token must never be used twice.
	Name           string
	PeerURLs       []string
	InitialCluster string
	Token          string
	// EtcdVersion is that of the etcd that will run on the data, major.minor or longer.
	EtcdVersion string
	// Bump is added to the revision, and all before is marked compacted, so that clients that have seen more of the old
	// history start again instead of missing changes. Only the last record of each key that is alive is written then, for
	// etcd drops the others when it starts. 0 leaves the revision as it is, and writes all of the history.
	Bump int64
	// ClearAlarms drops the alarms NOSPACE that were raised: with one in the snapshot the cluster would be read-only. CORRUPT
	// stays: it speaks of the data, which is what is restored.
	ClearAlarms bool
	// Quota of the etcd that will run on the data, in bytes: what gives a larger database is refused, for etcd would refuse
	// writes; and so is a File whose own database is larger. 0: it is not compared.
	Quota int64
	// RefuseAuth refuses data in which authentication is on.
	RefuseAuth bool
	// Progress is reported how far it is, a few times per second at most on a fast disk. It may be nil, and must not block.
	Progress func(Progress)
}

// Phase of a restore.
type Phase string

// The phases, in their order.
const (
	// Fetching: the full is streamed to disk.
	Fetching Phase = "fetching"
	// Applying: the deltas are appended. Where only what is alive is written there are two phases instead: Surveying, in which the full and
	// the deltas are read, and Writing.
	Applying  Phase = "applying"
	Surveying Phase = "surveying"
	Writing   Phase = "writing"
	// Finishing: what is written is made durable.
	Finishing Phase = "finishing"
)

// Progress of a restore.
type Progress struct {
	Phase Phase
	// Bytes of the database written, of TotalBytes.
	Bytes, TotalBytes int64
	// Deltas that were applied, of TotalDeltas, and the events in them so far.
	Deltas, TotalDeltas int
	Events              int64
	// DeltaBytes are the sizes of those deltas in the store, of TotalDeltaBytes.
	DeltaBytes, TotalDeltaBytes int64
	// Revision that is reached.
	Revision int64
}

// Result is a data directory that was restored.
type Result struct {
	// Revision of the key space that was restored. Bumped is the one that etcd will start from.
	Revision, Bumped int64
	// ClusterID and MemberID that etcd will have.
	ClusterID, MemberID uint64
	// Events that were applied, out of Deltas deltas.
	Events int64
	Deltas int
	// Keys that are alive, where only these were written.
	Keys int64
	// Trimmed are the records of the full that were written after the target.
	Trimmed int64
	// Leases that were added, because keys refer to them and the full does not know them; of Guessed ones no one knows
	// how long they were to live.
	Leases, Guessed int
	// Checkpoints that the deltas hold, of revisions that were restored, in the order of the deltas.
	Checkpoints []Checkpoint
	// Size of the database in bytes.
	Size int64
}

// Checkpoint is what etcd said of itself, and Object the key of the delta that reports it.
type Checkpoint struct {
	Object string
	delta.Checkpoint
	// Alive are the leases that etcd had then; nil: the delta does not report.
	Alive []int64
}

func (c *Config) validate() error {
	switch {
	case c.Store == nil || (c.Plan.Full.Key == "") == (c.File.Key == ""):
		return errors.New("restore: want a store, and either a plan or a file")
	case !filepath.IsAbs(c.DataDir) || filepath.Dir(c.DataDir) == c.DataDir:
		return fmt.Errorf("restore: data directory %q: want an absolute path", c.DataDir)
	case c.Name == "" || c.Token == "" || c.InitialCluster == "":
		return fmt.Errorf("restore: name %q, token %q and initial cluster %q: none may be empty", c.Name, c.Token, c.InitialCluster)
	case c.Bump < 0:
		return fmt.Errorf("restore: bump of %d, want 0 or more", c.Bump)
	}
	return nil
}

// origin is what the database comes from: the plan's full, or the file.
func (c *Config) origin() (key string, size int64) {
	if c.File.Key != "" {
		return c.File.Key, c.File.Size
	}
	return c.Plan.Full.Key, c.Plan.Full.Size
}

// Subject is the origin in words.
func (c *Config) Subject() string {
	key, _ := c.origin()
	if c.File.Key != "" {
		return "file " + key
	}
	return "full " + key
}

// paceAfter is how long a phase is watched before anything is said of how fast it goes.
const paceAfter = time.Second

// Pace reports from what is reported of a restore how fast it goes. Each phase has its own: what a phase that has not begun will take
// no one knows. The zero Pace has seen nothing.
type Pace struct {
	first Progress
	began time.Time
}

// Speed of a phase.
type Speed struct {
	// Part of the phase that is done, from 0 to 1.
	Part float64
	// PerSecond are bytes of the database while it is fetched or written, and events while they are read or applied; 0: not known yet.
	PerSecond float64
	// Left is how long the phase will still take if it goes on as it did; known says whether that can be reported.
	Left  time.Duration
	Known bool
}

// Observe takes what is reported, and when.
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

// part of the phase that is done.
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

// Words say how far a restore is, how fast it goes, and when the phase ends; and that this is unknown, where it is.
func (s Speed) Words(at Progress) string {
	left := "time left unknown"
	if s.Known {
		left = fmt.Sprintf("about %s left", s.Left)
	}
	switch at.Phase {
	case Fetching:
		return fmt.Sprintf("full: %d of %d MiB, %s, %s; %d deltas follow", at.Bytes>>20, at.TotalBytes>>20,
			s.rate("%.1f MiB/s", 1<<20), left, at.TotalDeltas)
	case Applying:
		return fmt.Sprintf("deltas: %d of %d, %d events, %s, revision %d, %s", at.Deltas, at.TotalDeltas, at.Events,
			s.rate("%.0f events/s", 1), at.Revision, left)
	case Surveying:
		return fmt.Sprintf("deltas: %d of %d read, %d events, %s, revision %d, %s", at.Deltas, at.TotalDeltas, at.Events,
			s.rate("%.0f events/s", 1), at.Revision, left)
	case Writing:
		return fmt.Sprintf("what is alive: %d of %d MiB written, %s, %s", at.Bytes>>20, at.TotalBytes>>20, s.rate("%.1f MiB/s", 1<<20), left)
	case Finishing:
	}
	return fmt.Sprintf("revision %d is reached and being made durable, %s", at.Revision, left)
}

func (s Speed) rate(format string, unit float64) string {
	if s.PerSecond == 0 {
		return "rate unknown"
	}
	return fmt.Sprintf(format, s.PerSecond/unit)
}
