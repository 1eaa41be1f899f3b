package leases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// annotationDisk on a member Lease is written by the member's agent: what the disk of the member holds.
const annotationDisk = Prefix + "disk"

// DiskState is the state of the data on a member's volume.
type DiskState string

// The states of a disk.
const (
	// DiskIntact: etcd can continue the data.
	DiskIntact DiskState = "intact"
	// DiskStale: the data is ours, but older than what the member Lease recorded, or from another volume.
	DiskStale DiskState = "stale"
	// DiskEmpty: no raft ID was ever started on the volume.
	DiskEmpty DiskState = "empty"
	// DiskCorrupt: the data is damaged. DiskReport.Kind names the damage.
	DiskCorrupt DiskState = "corrupt"
	// DiskForeign: the data does not belong to this member.
	DiskForeign DiskState = "foreign"
	// DiskNewer: a newer minor version of etcd wrote the data.
	DiskNewer DiskState = "newer"
	// DiskFailing: the data is intact, but etcd ended repeatedly within seconds of its start.
	DiskFailing DiskState = "failing"
)

// diskStates are all states, for the strict reader.
var diskStates = []DiskState{DiskIntact, DiskStale, DiskEmpty, DiskCorrupt, DiskForeign, DiskNewer, DiskFailing}

// maxFailure bounds a failure that this reader does not know, in bytes.
const maxFailure = 16

// MaxDiskReport bounds the annotation in bytes. A report of seven voters with 64-bit IDs, an alarm for each and large numbers fits.
const MaxDiskReport = 900

// DiskReport is what the agent found on the volume of its member, while etcd does not run there. A report without Order can be
// old, so it is only an estimate. A report with Order does not become old, because the agent starts no etcd on the volume
// before the order is released or superseded.
type DiskReport struct {
	// Pod and Volume are the UIDs of the Pod that inspected the volume, and of the PersistentVolumeClaim.
	Pod    string `json:"pod"`
	Volume string `json:"volume,omitempty"`
	// State of the data, and Kind of the damage if the state is corrupt.
	State DiskState `json:"state"`
	Kind  string    `json:"kind,omitempty"`
	// WholeDB says that every page of the database is valid, also if only the log is damaged.
	WholeDB bool `json:"wholeDB,omitempty"`
	// Cluster and Member are the IDs of the data, hex. They are empty without data.
	Cluster string `json:"cluster,omitempty"`
	Member  string `json:"member,omitempty"`
	// Epoch and Lineage of the raft group of the data.
	Epoch   uint32 `json:"epoch,omitempty"`
	Lineage string `json:"lineage,omitempty"`
	// Prepared is the epoch of the last order that the agent wrote into the identity file, 0 for none.
	Prepared uint32 `json:"prepared,omitempty"`
	// LastTerm and Last are the position of the last log entry. Commit is that of the HardState. Applied is the index up to
	// which the database has the log, and Tail is the number of entries after it.
	LastTerm uint64 `json:"lastTerm,omitempty"`
	Last     uint64 `json:"last,omitempty"`
	Commit   uint64 `json:"commit,omitempty"`
	Applied  uint64 `json:"applied,omitempty"`
	Tail     uint64 `json:"tail,omitempty"`
	// Revision of the database.
	Revision int64 `json:"revision,omitempty"`
	// Voters are the IDs, hex, in the database and in later changes in the log, separated by commas.
	Voters string `json:"voters,omitempty"`
	// Uncommitted are those of Voters, separated by commas, that only changes after Commit add. They may have no vote.
	Uncommitted string `json:"uncommitted,omitempty"`
	// Corrupt are the IDs of members, hex, that an alarm CORRUPT in the data names, separated by commas. The ID 0 is any member.
	Corrupt string `json:"corrupt,omitempty"`
	// Size of the database and Free space of the volume, in bytes. Free includes what the agent can delete for a recovery.
	Size int64 `json:"size,omitempty"`
	Free int64 `json:"free,omitempty"`
	// Orders says that the agent carries out recovery orders.
	Orders bool `json:"orders,omitempty"`
	// Order is Recovery.Name of the order that the report acknowledges, or empty.
	Order string `json:"order,omitempty"`
	// Failed says why the member cannot carry out that order. It is empty as long as it can.
	Failed RestoreFailure `json:"failed,omitempty"`
}

// VoterIDs returns the IDs in Voters.
func (c DiskReport) VoterIDs() []string { return idsIn(c.Voters) }

// VoterLists returns the lists of voters that the raft group of the data can have: all of Voters, and those without Uncommitted. There is none
// if the voters are unknown.
func (c DiskReport) VoterLists() (lists [][]string) {
	all := c.VoterIDs()
	if len(all) == 0 {
		return nil
	}
	lists = append(lists, all)
	added := idsIn(c.Uncommitted)
	committed := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(added, id) })
	if 0 < len(committed) && len(committed) < len(all) {
		lists = append(lists, committed)
	}
	return lists
}

// idsIn returns the IDs of a list that is separated by commas.
func idsIn(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// CallsCorrupt says whether an alarm CORRUPT in the data names the member with the ID, hex.
func (c DiskReport) CallsCorrupt(id string) bool {
	return slices.ContainsFunc(idsIn(c.Corrupt), func(named string) bool { return named == "0" || named == id })
}

// Digest identifies what an order relies on: the volume and the data. It ignores what can change without another
// inspection: the Pod, sizes and whether a restore failed. It ignores Corrupt and Uncommitted, which an earlier version of druid does not
// read: the positions identify the data already.
func (c DiskReport) Digest() string {
	c.Pod, c.Size, c.Free, c.Failed, c.Corrupt, c.Uncommitted = "", 0, 0, "", "", ""
	raw, _ := json.Marshal(c) //nolint:errchkjson // strings, numbers and a bool only
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// Encode returns the annotation.
func (c DiskReport) Encode() (string, error) {
	if err := c.check(); err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", annotationDisk, err)
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", annotationDisk, err)
	}
	if len(raw) > MaxDiskReport {
		return "", fmt.Errorf("encode annotation %s: it has %d bytes, more than %d", annotationDisk, len(raw), MaxDiskReport)
	}
	return string(raw), nil
}

// ParseDiskReport reads the annotation. An empty or invalid one is nil: it is unknown what the disk holds.
func ParseDiskReport(s string) *DiskReport {
	if s == "" || len(s) > MaxDiskReport {
		return nil
	}
	var c DiskReport
	if decodeJSON(s, &c) != nil || c.check() != nil {
		return nil
	}
	return &c
}

// check returns what is wrong with the report.
func (c DiskReport) check() error {
	switch {
	case c.Pod == "":
		return fmt.Errorf("%w: a report without a Pod", ErrUnreadable)
	case !slices.Contains(diskStates, c.State):
		return fmt.Errorf("%w: state %q of a disk", ErrUnreadable, c.State)
	case min(c.Revision, c.Size, c.Free) < 0:
		return fmt.Errorf("%w: a negative number in a report", ErrUnreadable)
	case c.State == DiskEmpty && (c.Cluster != "" || c.Member != "" || c.Last != 0):
		return fmt.Errorf("%w: an empty disk with data", ErrUnreadable)
	case (c.State == DiskIntact || c.State == DiskFailing) && (c.Cluster == "" || c.Member == "" || c.Epoch == 0):
		return fmt.Errorf("%w: %s data without cluster, member or epoch", ErrUnreadable, c.State)
	}
	if err := c.checkOrder(); err != nil {
		return err
	}
	return c.checkIDs()
}

// checkOrder returns what is wrong with the order that the report acknowledges, and with its failure.
func (c DiskReport) checkOrder() error {
	switch {
	case c.Order != "" && !validOrderName(c.Order):
		return fmt.Errorf("%w: order %q in a report", ErrUnreadable, c.Order)
	case c.Failed != "" && (c.Order == "" || len(c.Failed) > maxFailure):
		return fmt.Errorf("%w: failure %q of order %q in a report", ErrUnreadable, c.Failed, c.Order)
	}
	return nil
}

// checkIDs returns what is wrong with the IDs. Only those of the cluster and the member can be absent.
func (c DiskReport) checkIDs() error {
	ids := slices.Concat([]string{c.Cluster, c.Member}, c.VoterIDs(), idsIn(c.Uncommitted))
	for i, id := range ids {
		if n, err := strconv.ParseUint(id, 16, 64); (id != "" || i > 1) && (err != nil || n == 0) {
			return fmt.Errorf("%w: ID %q in a report", ErrUnreadable, id)
		}
	}
	for _, id := range idsIn(c.Corrupt) {
		if _, err := strconv.ParseUint(id, 16, 64); err != nil {
			return fmt.Errorf("%w: ID %q of an alarm in a report", ErrUnreadable, id)
		}
	}
	return nil
}

// PublishDiskReport writes what the disk of the member called name holds, if its Lease still is at version. Otherwise it
// changes nothing and returns ErrConflict. nil removes the report. It returns what Marks returns, as it is after that.
func (s *Store) PublishDiskReport(ctx context.Context, name string, version Version, c *DiskReport) (Member, error) {
	annotations := annotationPatch{annotationDisk: nil}
	if c != nil {
		value, err := c.Encode()
		if err != nil {
			return Member{}, fmt.Errorf("patch Lease %s: %w", name, err)
		}
		annotations[annotationDisk] = &value
	}
	lease, err := s.annotate(ctx, name, version, annotations)
	if err != nil {
		return Member{}, err
	}
	return marksOf(lease), nil
}

// RestoreFailure says why no later attempt of a member can carry out a recovery order before a user acts. It is empty as long as an
// attempt can succeed. A reader takes a value that it does not know for a failure.
type RestoreFailure string

// The failures.
const (
	// FailedBackups: the objects do not lead to the target, are damaged, or were deleted.
	FailedBackups RestoreFailure = "backups"
	// FailedKey: the agent does not have the key of an encrypted object.
	FailedKey RestoreFailure = "key"
	// FailedSpace: the data of the new raft group does not fit on the volume.
	FailedSpace RestoreFailure = "space"
	// FailedQuota: the restored database is larger than the quota of etcd.
	FailedQuota RestoreFailure = "quota"
	// FailedVersion: etcd or the agent is too old for the backup or the data.
	FailedVersion RestoreFailure = "version"
	// FailedAuth: authentication is on in the backup, and the spec does not enable it.
	FailedAuth RestoreFailure = "auth"
	// FailedData: the data on the disk of the member cannot be used, or the agent cannot apply its log.
	FailedData RestoreFailure = "data"
)
