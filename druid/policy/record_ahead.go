package policy

import "github.com/etcd-druid/druid/leases"

// recordAhead says whether the record names a raft group that was never formed: another one, or a later epoch, than the status, while a
// quorum of the listed members reports that of the status. The agents would stop etcd for such a record. The agent that carries out a
// recovery writes the result together with the raft group, so a raft group of a recovery is never taken back. The Lease of one member,
// whose agent may be compromised, is no quorum.
func recordAhead(d Desired, o Observed) bool {
	return differsFromStatus(d, o) && !reportedByAMember(d, o) && statusServes(d, o)
}

// differsFromStatus says whether a record that no recovery wrote names another raft group, or a later epoch, than the status.
func differsFromStatus(d Desired, o Observed) bool {
	r := o.Record
	if o.RecordState != RecordFormed || r.ClusterID == 0 || d.ClusterID == 0 || d.Epoch == 0 {
		return false
	}
	recovered := r.Recovered != nil && r.Recovered.Epoch == r.FormedEpoch
	return !recovered && (r.ClusterID != d.ClusterID || max(r.Epoch, r.FormedEpoch) > d.Epoch)
}

// reportedByAMember says whether a Lease reports the raft group of the record, where it is not that of the status, or a later one.
func reportedByAMember(d Desired, o Observed) bool {
	for _, m := range o.Members {
		says := m.Reports
		if m.Lease == LeaseOurs && m.Readable && (says.Epoch > d.Epoch || o.Record.ClusterID != d.ClusterID && says.ClusterID == o.Record.ClusterID) {
			return true
		}
	}
	return false
}

// statusServes says whether a quorum of the listed members reports the raft group and the epoch of the status.
func statusServes(d Desired, o Observed) bool {
	listed, serving := o.listed(), 0
	for _, m := range listed {
		if m.reportsVoter() && m.Liveness&(leases.Live|leases.Unknown) != 0 && m.Reports.ClusterID == d.ClusterID && m.Reports.Epoch == d.Epoch {
			serving++
		}
	}
	return serving >= quorum(len(listed)+len(o.Record.Externals))
}
