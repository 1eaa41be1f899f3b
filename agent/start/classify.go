package start

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/leases"
)

// volumeState is what was found on the volume.
type volumeState struct {
	report       datadir.Report
	identityFile datadir.IdentityFile
	// stampErr is ErrNoStamp, ErrBadStamp or what the disk answered; err is the inspection's.
	identityFileErr, err error
}

// ownLease is what was read of our own Lease.
type ownLease struct {
	member leases.Member
	err    error
}

// classifyData says whether the data is ours to continue (R3), and in words what speaks against it. What only the Lease
// can report is taken as good when the Lease cannot be read, and could not be before (heard): R1 lets Resume alone pass then.
func classifyData(cfg config.Config, v volumeState, own ownLease) (data Data, detail string) {
	switch identityFileLost := errors.Is(v.identityFileErr, datadir.ErrNoIdentityFile) || errors.Is(v.identityFileErr, datadir.ErrBadIdentityFile); {
	case v.err != nil:
		return DataUnread, v.err.Error()
	case v.report.State == datadir.Empty:
		return Empty, ""
	case v.identityFileErr != nil && !identityFileLost:
		return DataUnread, v.identityFileErr.Error()
	case v.identityFileErr != nil:
		return Foreign, "no agent stamped it: " + v.identityFileErr.Error()
	case v.identityFile.Cluster != cfg.ClusterUID:
		return Foreign, fmt.Sprintf("it is of the EtcdCluster with UID %s, we are %s", v.identityFile.Cluster, cfg.ClusterUID)
	case v.identityFile.Member != cfg.Member:
		return Foreign, fmt.Sprintf("it is of member %s, we are %s", v.identityFile.Member, cfg.Member)
	case v.report.State == datadir.Corrupt:
		return Corrupt, v.report.String() + ": " + v.report.Detail
	case v.report.ClusterID != uint64(v.identityFile.ClusterID) || v.report.MemberID != uint64(v.identityFile.MemberID):
		return Foreign, fmt.Sprintf("its log is of member %x in cluster %x, its stamp of %x in %x",
			v.report.MemberID, v.report.ClusterID, uint64(v.identityFile.MemberID), uint64(v.identityFile.ClusterID))
	case v.report.State == datadir.NewerSchema:
		return Newer, "it is of etcd " + v.report.StorageVersion
	case own.err == nil:
		return againstLease(v, own.member)
	default:
		return Intact, ""
	}
}

// againstLease compares intact data with what our Lease recorded of it.
func againstLease(v volumeState, own leases.Member) (Data, string) {
	if own.VolumeUID != "" && v.identityFile.VolumeUID != "" && own.VolumeUID != v.identityFile.VolumeUID {
		return Stale, fmt.Sprintf("it was written on the volume with UID %s, this one is %s", v.identityFile.VolumeUID, own.VolumeUID)
	}
	if own.ClusterID != v.report.ClusterID {
		return Intact, ""
	}
	if own.ID != v.report.MemberID {
		return againstAnotherID(v, own)
	}
	if v.report.Term < own.Floor.Term || v.report.Last.Index < own.Floor.Committed {
		return Stale, fmt.Sprintf("it ends at term %d, index %d and once held term %d, index %d: the volume went back in time",
			v.report.Term, v.report.Last.Index, own.Floor.Term, own.Floor.Committed)
	}
	return Intact, ""
}

// againstAnotherID compares data with what our Lease recorded under another raft ID of ours in the same group. Its index says nothing
// about this log. Its term does: terms belong to the group, and a member that joined later took the term of the leader that added it,
// or a higher one. So data of a lower term is of an ID that we had before, and other members may have voted without it since. A log
// of term 0 is of a member that has not heard from a leader yet.
func againstAnotherID(v volumeState, own leases.Member) (Data, string) {
	reached := max(own.Floor.Term, own.Raft.Term)
	if v.report.Term == 0 || v.report.Term >= reached {
		return Intact, ""
	}
	return Stale, fmt.Sprintf("it is of member %x at term %d, and this member was %x at term %d of the same group: the volume went back in time",
		v.report.MemberID, v.report.Term, own.ID, reached)
}

// classifyLease says what our own Lease makes of us.
func classifyLease(cfg config.Config, own ownLease) (lease Lease, detail string) {
	switch {
	case own.err != nil:
		return LeaseUnread, own.err.Error()
	case own.member.PodUID == "":
		return LeaseUnread, "druid has not written the Pod's UID into it yet"
	case own.member.PodUID != cfg.PodUID:
		return Superseded, fmt.Sprintf("it names the Pod with UID %s, we are %s", own.member.PodUID, cfg.PodUID)
	case own.member.Removal.State == leases.RemovalRequested:
		return Leaving, ""
	case own.member.Removal.State != leases.RemovalNone:
		return RemovalAcknowledged, "its mark is " + string(own.member.Removal.State)
	default:
		return Fresh, ""
	}
}

// recordState is what was read of the cluster record.
type recordState struct {
	record  leases.Record
	version leases.Version
	err     error
}

// classifyRecord says what the record makes of the cluster.
func classifyRecord(cfg config.Config, r recordState) Record {
	switch {
	case errors.Is(r.err, leases.ErrAbsent):
		return RecordAbsent
	case r.err != nil:
		return RecordUnread
	}
	switch complete := isComplete(r.record); r.record.Phase {
	case leases.PhaseForming:
		switch r.record.Executor {
		case "":
			return Unclaimed
		case cfg.PodUID:
			return FormingByUs
		default:
			return FormingByAnother
		}
	case leases.PhaseFormed:
		if !complete {
			return FormedIncomplete
		}
		return Formed
	case leases.PhaseRecovering:
		return Recovering
	default:
		return RecordUnread
	}
}

// isComplete says whether a joiner finds in a Formed record all that it stamps its volume with.
func isComplete(r leases.Record) bool {
	return r.ClusterID != 0 && r.Epoch != 0 && r.Nonce != "" && r.Lineage != "" && r.MaxLearners > 0
}

// classifyPlace says what the record wants of this member.
func classifyPlace(cfg config.Config, r leases.Record) Place {
	switch {
	case !r.Lists(cfg.Member):
		return Undesired
	case r.Phase == leases.PhaseForming && r.Seed == cfg.Member:
		return Seed
	default:
		return Desired
	}
}

// classifySlot says whose turn it is to replace itself or to leave, and who that is. A slot of a member that is not desired
// any more binds no one. Our own replacement, once begun, goes on.
func classifySlot(cfg config.Config, r leases.Record) (slot Slot, holder string) {
	replacing, pendingRemoval := r.Replacing, r.PendingRemoval
	if replacing != nil && !r.Lists(replacing.Member) {
		replacing = nil
	}
	switch {
	case replacing != nil && replacing.Member == cfg.Member:
		return SlotOurs, cfg.Member
	case pendingRemoval != nil && r.Lists(pendingRemoval.Member):
		return SlotLeaving, pendingRemoval.Member
	case replacing != nil:
		return SlotTaken, replacing.Member
	default:
		return SlotFree, ""
	}
}

// classifyEpoch compares the raft group of the data with the record's.
func classifyEpoch(cfg config.Config, v volumeState, r recordState) Epoch {
	if v.err != nil || v.identityFileErr != nil || v.report.State == datadir.Empty || r.err != nil {
		return EpochUnknown
	}
	record, identityFile := r.record, v.identityFile
	if record.Phase == leases.PhaseForming {
		switch {
		case identityFile.Formed:
			return EpochUnknown // a record that forgot what this volume knows
		case record.Nonce == "" && record.Seed == cfg.Member:
			return EpochUnknown // a record that forgot our claim: forming claims it again
		case leases.LineageOf(record.Epoch, record.Nonce) == identityFile.Lineage:
			return Current
		default:
			return Fenced
		}
	}
	switch {
	case record.ClusterID == 0:
		return EpochUnknown
	case record.ClusterID == uint64(identityFile.ClusterID):
		return Current
	case identityFile.Epoch > max(record.Epoch, record.FormedEpoch):
		return EpochUnknown
	default:
		return Fenced
	}
}

// What a catalog of backups means for a bootstrap. Pure, as pure.go.

// epochAbove is above the epoch of every lineage in the catalog: lineages of one place are ordered by it.
func epochAbove(c catalog.Catalog) (uint32, error) {
	var highest uint32
	for _, h := range c.Histories {
		highest = max(highest, h.Lineage.Epoch())
	}
	if highest == math.MaxUint32 {
		return 0, fmt.Errorf("below %s stands a lineage of the highest epoch that there is, and none can follow it; move it away", c.Prefix)
	}
	return highest + 1, nil
}

// formedBefore is the error that names a lineage which says that this EtcdCluster, the one with this UID, was formed
// before. Those of others that bore its name say nothing. The record of a bootstrap that cannot be read may be ours; but where
// a restore is ordered, which is when a cluster is lost, one broken object must not forbid it. And a lineage that nothing
// was saved of is then of an attempt that was lost: the record of its bootstrap is written before the cluster is formed.
func formedBefore(c catalog.Catalog, uid string, ordered bool) error {
	for _, h := range c.Histories {
		switch saved := len(h.Fulls)+len(h.Deltas) > 0; {
		case h.Formation == nil && saved && !ordered:
			return fmt.Errorf("nothing reports whose lineage %s below %s is: %s", h.Lineage, c.Prefix, h.BootstrapProblem)
		case h.Formation != nil && h.Formation.ClusterUID == uid && (saved || !ordered):
			return fmt.Errorf("lineage %s below %s is of this EtcdCluster; an EtcdCluster of another name can be restored from it",
				h.Lineage, c.Prefix)
		}
	}
	return nil
}

// withoutLost leaves out what attempts of ours have left: they are no history of what is to be restored.
func withoutLost(c catalog.Catalog, uid string) catalog.Catalog {
	c.Histories = slices.DeleteFunc(slices.Clone(c.Histories), func(h catalog.History) bool {
		return h.Formation != nil && h.Formation.ClusterUID == uid
	})
	return c
}

// classifyPlan says what it means that there is no plan: what is not in the backups may yet come into them.
func classifyPlan(err error) Backup {
	switch {
	case errors.Is(err, catalog.ErrEmpty), errors.Is(err, catalog.ErrUnknown), errors.Is(err, catalog.ErrOutside):
		return NoBackup
	default:
		return BackupUnusable
	}
}

// forkOf is the record of the bootstrap of a group that was restored. created is by our own clock.
func forkOf(identityFile datadir.IdentityFile, etcdVersion string, created time.Time) catalog.Formation {
	return catalog.Formation{
		Lineage: catalog.Lineage(identityFile.Lineage), Parent: catalog.Lineage(identityFile.Parent), Fork: identityFile.Fork, Reason: "restore", File: identityFile.File,
		ClusterID: leases.FormatID(uint64(identityFile.ClusterID)), ClusterUID: identityFile.Cluster,
		EtcdVersion: etcdVersion, Created: created,
	}
}
