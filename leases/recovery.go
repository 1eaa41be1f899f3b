package leases

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Annotations of the cluster record for the recovery from a lost quorum. druid writes the order, and the chosen agent
// writes its attempt and reports the result.
const (
	annotationRecoveryAttempt = Prefix + "recovery-attempt"
	annotationReleased        = Prefix + "released"
	annotationRecovered       = Prefix + "recovered"
)

// Stage of an order.
type Stage string

// The stages.
const (
	// StagePrepare: each agent without a quorum stops etcd, writes the epoch of the order into the identity file and
	// acknowledges the order in its disk report.
	StagePrepare Stage = "Prepare"
	// StageExecute: the chosen agent forms a new raft group.
	StageExecute Stage = "Execute"
)

// RecoveryMode is the source of the new raft group.
type RecoveryMode string

// The modes.
const (
	// RecoverSurvivor: from the disk of the chosen member.
	RecoverSurvivor RecoveryMode = "Survivor"
	// RecoverBackup: from the backup store.
	RecoverBackup RecoveryMode = "Backup"
	// RecoverRestore: from the backup store, up to the target of the order, although the quorum serves. An agent stops its etcd for
	// such an order also if the quorum serves.
	RecoverRestore RecoveryMode = "Restore"
)

// Restores says whether the order restores a cluster whose quorum serves.
func (o *Recovery) Restores() bool { return o != nil && o.Mode == RecoverRestore }

// Recovery is the order to form a new raft group, after the quorum was lost or for a restore in place. It is in effect only
// while the phase of the record is Recovering. The other fields of the record describe the old raft group until the phase is
// Formed again.
type Recovery struct {
	// Epoch of the new raft group. It exceeds every epoch that druid saw. An order whose epoch does not exceed the formed
	// epoch requests nothing.
	Epoch uint32 `json:"epoch"`
	// Nonce identifies the order.
	Nonce string       `json:"nonce"`
	Stage Stage        `json:"stage"`
	Mode  RecoveryMode `json:"mode"`
	// Chosen is the member that forms the new raft group.
	Chosen string `json:"chosen"`
	// Report is the Digest of the acknowledged disk report of the chosen member. It is set in the stage Execute. The chosen agent
	// acts only if its disk report still has this digest.
	Report string `json:"report,omitempty"`
	// GiveUp are the members that the user gave up, and IDs of voters that no member has: by the approval, the user asserts that their data is
	// destroyed.
	GiveUp []string `json:"giveUp,omitempty"`
	// Unable are the members that could not carry out an earlier order, whose disks have the same data as that of the chosen member. An
	// agent that does not know it drops it.
	Unable []string `json:"unable,omitempty"`
	// Lineage and Revision, in the mode Backup, are the newest backup when druid made the order. There, the agent restores the
	// newest revision of the lineage that the record names. Of another lineage, it restores exactly this revision.
	Lineage  string `json:"lineage,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Target and Request, in the mode Restore, are what is restored, and the key of the request that was planned and approved.
	// Lineage and Revision are then those of the plan.
	Target  *RestoreTarget `json:"target,omitempty"`
	Request string         `json:"request,omitempty"`
	// Known is the highest revision that druid saw. The new raft group starts with a higher one.
	Known int64 `json:"known,omitempty"`
	// Plan is the hash of the plan that this order carries out.
	Plan string `json:"plan,omitempty"`
	// Revisions and Seconds are the loss that this order permits. Unmeasured permits a loss that is not known.
	Revisions  int64 `json:"revisions"`
	Seconds    int64 `json:"seconds"`
	Unmeasured bool  `json:"unmeasured,omitempty"`
	// Disputed permits data that differs from that of other members. An agent that does not know it drops it, and then you approve again.
	Disputed bool `json:"disputed,omitempty"`
	// Since is when druid wrote the order, in the mode Restore, by its clock. An order of that mode stands for a limited time.
	Since time.Time `json:"since,omitzero"`
	// Approved says that you approved it. Otherwise spec.recovery did.
	Approved bool `json:"approved,omitempty"`
}

// RecoveryAttempt is an attempt of the chosen agent to carry out an order, written before any data.
type RecoveryAttempt struct {
	// Order is Recovery.Name of the order.
	Order string `json:"order"`
	// Nonce is part of the token of the new raft group, and is generated for each attempt.
	Nonce string `json:"nonce"`
	// PodUID of the Pod that claimed the order, and ClusterID, hex, that the new raft group will have.
	PodUID    string `json:"podUID"`
	ClusterID string `json:"clusterID"`
}

// Recovered is the result of the last recovery. It is written together with the phase Formed.
type Recovered struct {
	Epoch uint32       `json:"epoch"`
	Mode  RecoveryMode `json:"mode"`
	// Member that formed the raft group.
	Member string `json:"member"`
	// Revision with which the new raft group started.
	Revision int64 `json:"revision"`
	// Plan is the hash of the plan that was carried out, and Request, in the mode Restore, the key of the request.
	Plan    string `json:"plan,omitempty"`
	Request string `json:"request,omitempty"`
	// Replaced is the backup lineage of the raft group that was replaced.
	Replaced string `json:"replaced,omitempty"`
}

// Name identifies the order in disk reports and attempts.
func (o Recovery) Name() string { return fmt.Sprintf("%d-%s", o.Epoch, o.Nonce) }

var orderNames = regexp.MustCompile(`^[1-9][0-9]{0,9}-[a-z0-9]{1,32}$`)

func validOrderName(s string) bool { return orderNames.MatchString(s) }

// check returns what is wrong with the order.
func (o *Recovery) check() error {
	switch {
	case o.Epoch < 2 || !validOrderName(o.Name()):
		return fmt.Errorf("%w: recovery order of epoch %d with nonce %q", ErrUnreadable, o.Epoch, o.Nonce)
	case o.Stage != StagePrepare && o.Stage != StageExecute:
		return fmt.Errorf("%w: stage %q of a recovery order", ErrUnreadable, o.Stage)
	case o.Mode != RecoverSurvivor && o.Mode != RecoverBackup && o.Mode != RecoverRestore:
		return fmt.Errorf("%w: mode %q of a recovery order", ErrUnreadable, o.Mode)
	case o.Restores() != (o.Target != nil), o.Restores() && !o.namesRestore():
		return fmt.Errorf("%w: target %v and lineage %q of a recovery order with mode %s", ErrUnreadable, o.Target, o.Lineage, o.Mode)
	case o.Chosen == "" || slices.Contains(o.GiveUp, o.Chosen):
		return fmt.Errorf("%w: recovery order for member %q, which gives up %q", ErrUnreadable, o.Chosen, o.GiveUp)
	case o.Stage == StageExecute && o.Report == "":
		return fmt.Errorf("%w: recovery order to execute without a claim", ErrUnreadable)
	}
	return nil
}

// namesRestore says whether an order with a target names all of a restore.
func (o *Recovery) namesRestore() bool {
	return o.Request != "" && o.Lineage != "" && o.Revision > 0 && o.Target.check() == nil
}

// Order returns the recovery order that is in effect, or nil. An order whose epoch does not exceed the formed epoch is
// not in effect.
func (r Record) Order() *Recovery {
	if r.Phase != PhaseRecovering || r.Recovery == nil || r.Recovery.Epoch <= r.FormedEpoch {
		return nil
	}
	return r.Recovery
}

// Attempted returns the attempt to carry out the order that is in effect, or nil.
func (r Record) Attempted() *RecoveryAttempt {
	if o := r.Order(); o == nil || o.Stage != StageExecute || r.Attempt == nil || r.Attempt.Order != o.Name() {
		return nil
	}
	return r.Attempt
}

// ErrOrder says that a record does not permit the change of its recovery order.
var ErrOrder = errors.New("the cluster record does not permit this recovery order")

// Prepare returns the record with a new order, which supersedes the one in effect. The slots stay: the member that one names can have been
// removed already, and a released order continues the raft group as it was.
func (r Record) Prepare(o Recovery) (Record, error) {
	o.Stage, o.Report = StagePrepare, ""
	if err := o.check(); err != nil {
		return r, err
	}
	floor := max(r.Epoch, r.FormedEpoch, r.Released)
	if r.Recovery != nil {
		floor = max(floor, r.Recovery.Epoch)
	}
	if r.FormedEpoch == 0 || r.Phase == PhaseForming || o.Epoch <= floor {
		return r, fmt.Errorf("%w: Prepare of epoch %d in phase %s, formed epoch %d, highest epoch %d", ErrOrder, o.Epoch, r.Phase, r.FormedEpoch, floor)
	}
	r.Phase, r.Recovery, r.Attempt = PhaseRecovering, &o, nil
	return r, nil
}

// Execute returns the record in which the prepared order is executed: the chosen member forms a raft group from what its acknowledged
// disk report says. Only a prepared order can be executed.
func (r Record) Execute(next Recovery) (Record, error) {
	o := r.Order()
	if o == nil || o.Name() != next.Name() || o.Stage != StagePrepare {
		return r, fmt.Errorf("%w: Execute of order %s", ErrOrder, next.Name())
	}
	next.Stage = StageExecute
	if err := next.check(); err != nil {
		return r, err
	}
	r.Recovery, r.Attempt = &next, nil
	return r, nil
}

// Release returns the record without the order called name. The old raft group continues, and members that acknowledged
// the order resume their data.
func (r Record) Release(name string) (Record, error) {
	if r.Phase != PhaseRecovering || r.Recovery == nil || r.Recovery.Name() != name {
		return r, fmt.Errorf("%w: release of order %s", ErrOrder, name)
	}
	r.Phase, r.Released = PhaseFormed, max(r.Released, r.Recovery.Epoch)
	r.Recovery, r.Attempt = nil, nil
	return r, nil
}

// ReleaseUpTo returns the record after which members that acknowledged an order of at most epoch resume their data. It is
// for orders that the record does not name any more, because it was deleted or rolled back.
func (r Record) ReleaseUpTo(epoch uint32) (Record, error) {
	if r.Phase != PhaseFormed || epoch <= r.Released || r.FormedEpoch == 0 {
		return r, fmt.Errorf("%w: release of epoch %d in phase %s", ErrOrder, epoch, r.Phase)
	}
	r.Released = epoch
	return r, nil
}

// Claimed returns the record in which the chosen agent claimed the order. A later attempt replaces the earlier one: no
// etcd of an attempt runs before the phase is Formed.
func (r Record) Claimed(a RecoveryAttempt) (Record, error) {
	o := r.Order()
	id, err := ParseID(a.ClusterID)
	if o == nil || o.Stage != StageExecute || a.Order != o.Name() || a.Nonce == "" || a.PodUID == "" || id == 0 || err != nil {
		return r, fmt.Errorf("%w: attempt %+v", ErrOrder, a)
	}
	r.Attempt = &a
	return r, nil
}

// Reformed returns the record after the attempt formed the new raft group. This is the commit point of a recovery: etcd
// of the new raft group starts only after this record was written. The limit of learners stays, because a member can
// still run the etcd version that set it.
func (r Record) Reformed(a RecoveryAttempt, done Recovered, fork Fork) (Record, error) {
	o, current := r.Order(), r.Attempted()
	if current == nil || *current != a || done.Epoch != o.Epoch {
		return r, fmt.Errorf("%w: attempt %+v formed epoch %d", ErrOrder, a, done.Epoch)
	}
	id, err := ParseID(a.ClusterID)
	if err != nil {
		return r, err
	}
	r.Phase, r.ClusterID, r.Epoch, r.FormedEpoch = PhaseFormed, id, o.Epoch, o.Epoch
	done.Replaced = r.Lineage
	r.Seed, r.Nonce, r.Executor, r.Lineage = o.Chosen, a.Nonce, a.PodUID, LineageOf(o.Epoch, a.Nonce)
	r.Fork = &fork
	r.Replacing, r.PendingRemoval, r.MemberList, r.Recovery, r.Attempt = nil, nil, nil, nil, nil
	done.Plan, done.Request = o.Plan, o.Request
	r.Recovered = &done
	return r, nil
}
