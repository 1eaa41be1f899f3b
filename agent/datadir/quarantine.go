package datadir

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/crash"
)

// Content says why data was quarantined and what is known about it.
type Content struct {
	// Reason is one word or a few, such as stale or torn-wal. It is part of the name of the directory.
	Reason string `json:"reason"`
	// Intact says that etcd could continue the data when it was moved. Otherwise, damage can hide the end of the log.
	Intact bool `json:"intact,omitempty"`
	// ClusterID, MemberID and Last are from Report, or zero if the damage hides them.
	ClusterID ID       `json:"clusterID"`
	MemberID  ID       `json:"memberID"`
	Last      Position `json:"last"`
	// Lineage of the raft group of the data, from the identity file.
	Lineage string `json:"lineage,omitempty"`
	// FormedInto is the lineage of the raft group that a recovery formed from all of this data. It is empty for data that a backup
	// replaced, and for damaged data.
	FormedInto string `json:"formedInto,omitempty"`
	// Report is a description of the data for the user.
	Report string `json:"report,omitempty"`
	// Moved is the later of two clocks: the node's and the API server's. Expiry counts from it. It does not define an order.
	Moved time.Time `json:"moved"`
}

// ContentOf describes data that was inspected.
func ContentOf(reason string, r Report) Content {
	text := r.String()
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return Content{Reason: reason, Intact: r.State == Intact, ClusterID: ID(r.ClusterID), MemberID: ID(r.MemberID), Last: r.Last, Report: text}
}

// Quarantined is a quarantined directory.
type Quarantined struct {
	// Name in the root of the volume.
	Name string
	// Seq counts the quarantined directories of this volume, from 1.
	Seq int
	// Content, and whether it could be read. Unknown content can be the most recent data.
	Content Content
	Known   bool
}

// Quarantine quarantines the data directory and its identity file by a rename, and returns the new name. If there is
// no data directory, it does nothing and returns "". After a crash, the data is either in place, or quarantined with
// its description. Only the identity file can then remain in the root of the volume, where it says nothing about an
// empty volume.
func Quarantine(dir string, c Content) (string, error) {
	data := volume.DataPath(dir)
	if _, err := os.Lstat(data); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("quarantine data: %w", err)
	}
	name, err := nextQuarantine(dir, c.Reason)
	if err != nil {
		return "", err
	}
	crash.Before("describe-quarantine")
	err = describe(dir, data, c)
	crash.After("describe-quarantine")
	if err != nil {
		return "", fmt.Errorf("quarantine data as %s: %w", name, err)
	}
	crash.Before("rename-quarantine")
	err = os.Rename(data, filepath.Join(dir, name))
	crash.After("rename-quarantine")
	if err != nil {
		return "", fmt.Errorf("quarantine data: %w", err)
	}
	if err := volume.SyncDir(dir); err != nil {
		return "", err
	}
	// Only now: an identity file must not vanish from data that is still in place.
	crash.Before("drop-identity-file")
	err = os.Remove(filepath.Join(dir, volume.IdentityFileName))
	crash.After("drop-identity-file")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return name, fmt.Errorf("remove the identity file of quarantined data: %w", err)
	}
	return name, volume.SyncDir(dir)
}

// describe writes the content and a copy of the identity file to the data directory.
func describe(dir, data string, c Content) error {
	if c.Moved.IsZero() {
		c.Moved = time.Now().UTC().Truncate(time.Second)
	}
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode description: %w", err)
	}
	if err := volume.WriteFile(filepath.Join(data, volume.QuarantineFile), append(raw, '\n')); err != nil {
		return err
	}
	identityFile, err := os.ReadFile(filepath.Join(dir, volume.IdentityFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy identity file: %w", err)
	}
	return volume.WriteFile(filepath.Join(data, volume.IdentityFileName), identityFile)
}

func nextQuarantine(dir, reason string) (string, error) {
	quarantined, err := AllQuarantined(dir)
	if err != nil {
		return "", err
	}
	seq := 1
	for _, a := range quarantined {
		seq = max(seq, a.Seq+1)
	}
	return fmt.Sprintf("%s%04d-%s", volume.QuarantinePrefix, seq, nameable(reason)), nil
}

// nameable converts reason to a part of a file name.
func nameable(reason string) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(reason))
	if s = strings.Trim(s[:min(len(s), 40)], "-"); s == "" {
		return "unknown"
	}
	return s
}

// The reasons of data that was replaced, also if it is damaged: that from which a recovery formed the raft group again, that which a
// backup or a raft group formed by another member replaced, and that which differed from the data of the other members.
const (
	ReasonSurvivor   = "survivor"
	ReasonSuperseded = "superseded"
	ReasonDiffers    = "differs"
)

// AllQuarantined lists the quarantined directories, the oldest first.
func AllQuarantined(dir string) ([]Quarantined, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list quarantined data: %w", err)
	}
	var quarantined []Quarantined
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), volume.QuarantinePrefix)
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, "-")
		seq, err := strconv.Atoi(number)
		if err != nil {
			continue // not a name of ours, so not ours to touch
		}
		a := Quarantined{Name: e.Name(), Seq: seq}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name(), volume.QuarantineFile))
		if err == nil {
			err = json.Unmarshal(raw, &a.Content)
		}
		a.Known = err == nil
		quarantined = append(quarantined, a)
	}
	slices.SortFunc(quarantined, func(a, b Quarantined) int { return cmp.Compare(a.Seq, b.Seq) })
	return quarantined, nil
}
