package plan

import (
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// backupSentences are the messages of condition BackupReady, by reason. Like all messages they hold nothing that changes
// while the backups do: the revision and the time of the last one stand in the Leases.
var backupSentences = map[string]func(picture) string{
	v1alpha1.ReasonFullBackupSucceeded: func(picture) string {
		return "a full backup is saved; changes since then are not saved yet"
	},
	v1alpha1.ReasonIncrementalBackupSucceeded: func(picture) string {
		return "a full backup and all changes since then are saved, within spec.backup.delta.period"
	},
	v1alpha1.ReasonFullBackupFailed: func(p picture) string {
		if p.Full.Says.EverSaved() {
			return "the newest full backup is older than spec.backup.full allows" + because(p.Full) + blocked
		}
		return "the first full backup failed" + because(p.Full) + blocked
	},
	v1alpha1.ReasonIncrementalBackupFailed: func(p picture) string {
		return "changes are not saved" + because(p.Delta) + blocked
	},
	v1alpha1.ReasonPaused: func(p picture) string {
		if len(p.listed()) == 0 {
			return "no member was created yet, so there is nothing to back up"
		}
		return "the cluster is paused, and no backup is made until it is resumed"
	},
	v1alpha1.ReasonBackupStoreNotAttached: func(picture) string { return "no backup exists yet" },
	v1alpha1.ReasonBackupSpecInvalid:      func(p picture) string { return p.BackupProblem },
	v1alpha1.ReasonBackupSuperseded: func(p picture) string {
		return "a restore of the latest backup would restore lineage " + p.Full.Says.SupersededBy +
			" of another cluster; backups continue, and nothing is deleted. Set another prefix for this cluster"
	},
	v1alpha1.ReasonUnknown: func(p picture) string {
		switch {
		case p.Full.Lease == LeaseForeign || p.Delta.Lease == LeaseForeign:
			return "the Leases of the backups have another owner"
		case p.Full.Liveness == leases.Never:
			return "the first full backup failed yet"
		default:
			return "it is not known yet whether backups succeed"
		}
	},
}

// blocked is what follows from a backup that fails.
const blocked = "; until it succeeds no member is removed and no eviction is allowed"

// because names the error of the last attempt.
func because(s Snapshot) string {
	if s.Says.Error == "" {
		return ". No agent reported an error: check that the cluster has a leader and that its agent runs"
	}
	return ": " + s.Says.Error
}

// backupSentence is the condition's message. Pods that do not reach the store are informed of in each: backups end when one of
// them leads.
func backupSentence(reason string, p picture) string {
	words := v1alpha1.ConditionBackupReady + " is " + reason
	if say, ok := backupSentences[reason]; ok {
		words = say(p)
	}
	if len(p.Unattached) > 0 {
		words += "; these Pods have no access to the store, because they are older than it: " + strings.Join(p.Unattached, ", ") +
			". Delete them one at a time while all members are ready. Their data stays"
	}
	return words
}
