package plan

import (
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/leases"
)

// formerVersion is the version of etcd with which a Pod that went away comes back, empty for the one that is asked for. It is the one
// that the member ran, as long as no member may go to another: who loses a Pod meanwhile must not go past the backup, nor to
// a minor that cannot read its storage yet.
func formerVersion(m Member, d Desired, o Observed) string {
	runs, told := versions.Parse(m.Says.Version)
	target, known := versions.Parse(d.Version)
	if !told || !known || runs == target || o.RecordState != RecordFormed || m.Lease != LeaseOurs || !m.Readable {
		return ""
	}
	stands := o.Record.Upgrade
	begun := stands.Order.Nonce != "" && stands.Order.Version == d.Version
	switch {
	case versions.JudgeStep(runs, target).Verdict == versions.Refused:
	case target.Minor < runs.Minor && !(begun && stands.Answer.Verdict == leases.UpgradeAgree):
	case d.Backup && !begun && o.Save.State != SaveDone:
	default:
		return ""
	}
	return m.Says.Version
}

// awaitsSave says whether it depends on the backup with which version the member's Pod comes back.
func (m Member) awaitsSave(d Desired, o Observed) bool {
	return m.Pod == PodAbsent && formerVersion(m, d, o) != ""
}
