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
		return "a full backup is saved; what changed since then is not saved yet"
	},
	v1alpha1.ReasonIncrementalBackupSucceeded: func(picture) string {
		return "a full backup and all changes since are saved, as often as spec.backup.delta.period asks for"
	},
	v1alpha1.ReasonFullBackupFailed: func(p picture) string {
		if p.Full.Says.EverSaved() {
			return "the newest full backup is older than spec.backup.full allows" + because(p.Full) + blocked
		}
		return "the first full backup was not made" + because(p.Full) + blocked
	},
	v1alpha1.ReasonIncrementalBackupFailed: func(p picture) string {
		return "changes are not saved" + because(p.Delta) + blocked
	},
	v1alpha1.ReasonPaused: func(p picture) string {
		if len(p.listed()) == 0 {
			return "no member was ever made, so there is nothing to back up"
		}
		return "the cluster is paused: nobody writes to it, and nothing is backed up until it is resumed"
	},
	v1alpha1.ReasonBackupStoreNotAttached: func(picture) string { return "no backup was made yet" },
	v1alpha1.ReasonBackupSpecInvalid:      func(p picture) string { return p.BackupProblem },
	v1alpha1.ReasonBackupSuperseded: func(p picture) string {
		return "a restore of the latest backup in the store's place would not take this cluster's, but lineage " + p.Full.Says.SupersededBy +
			" of another cluster; backups go on, and nothing is deleted: give this cluster another prefix of the store"
	},
	v1alpha1.ReasonUnknown: func(p picture) string {
		switch {
		case p.Full.Lease == LeaseForeign || p.Delta.Lease == LeaseForeign:
			return "the Leases that tell of backups belong to somebody else"
		case p.Full.Liveness == leases.Never:
			return "the first full backup was not made yet"
		default:
			return "it is not known yet whether backups go on"
		}
	},
}

// blocked is what follows from a backup that fails.
const blocked = "; until it succeeds no member is removed and no eviction is allowed"

// because names the error of the last attempt.
func because(s Snapshot) string {
	if s.Says.Error == "" {
		return ", and the agents tell no error: is there a leader, and does its agent run?"
	}
	return ": " + s.Says.Error
}

// backupSentence is the condition's message. Pods that do not reach the store are told of in each: backups end when one of
// them leads.
func backupSentence(reason string, p picture) string {
	words := v1alpha1.ConditionBackupReady + " is " + reason
	if say, ok := backupSentences[reason]; ok {
		words = say(p)
	}
	if len(p.Unattached) > 0 {
		words += "; Pods that were made before the store was named have no access to it: " + strings.Join(p.Unattached, ", ") +
			". Delete them one at a time, each when all members are ready; their data stays"
	}
	return words
}
