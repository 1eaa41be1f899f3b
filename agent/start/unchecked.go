package start

import (
	"context"
	"time"

	"github.com/etcd-druid/druid/agent/launch"
)

// checkBound is how long etcd may have run if its initial check ended it. Before that check, etcd reads its database and its log. The check
// hashes the complete database: 8 GiB, the largest size that etcd suggests, take under 3 min at 50 MiB/s. It then asks each of the at most
// eight other members, one after another, and waits 7 s for a silent one (ReqTimeout in corrupt.go of etcd): 1 min.
const checkBound = 5 * time.Minute

// startsUnchecked reports whether the next etcd starts without its initial check: a checked start failed, and a quorum serves without this
// member. Otherwise, this start could form a quorum in which no majority has the same data, and a member that joins would copy either data.
// Of a cluster with one or two members, no quorum serves without this member. The caller observed listed while no etcd ran here: the
// linearizable member list then came from a leader that a quorum of the other voters confirmed.
func startsUnchecked(report launch.Report, listed Listed) bool {
	return endedByItself(report) && listed&NoQuorum == 0
}

// quorumStillServes reads the member list again, immediately before etcd starts without its check: since the
// observation, the volume was inspected and Kubernetes was asked. What remains is the time until etcd votes, in which
// no agent can ask it.
func (b *Bootstrapper) quorumStillServes(ctx context.Context, o *observation) bool {
	record, known := b.knownRecord(o)
	if !known {
		return false
	}
	_, err := b.list(ctx, record, uint64(o.volume.identityFile.ClusterID))
	if err != nil && ctx.Err() == nil {
		b.log.InfoContext(ctx, "start without the check of etcd given up, because the quorum does not answer any more", "err", err)
	}
	return err == nil
}

// endedByItself reports whether the previous etcd ended with an error within checkBound. The initial check of etcd ends
// it so if the data of any other member differs, also if that member is the differing one. The agent compares all voters
// instead (duties.DifferingMember).
func endedByItself(report launch.Report) bool {
	exit := report.LastExit
	return exit != nil && !report.Clean && exit.Signal == "" && exit.Code > 0 && exit.RanFor <= checkBound
}

// Unchecked reports whether the data of the running etcd was not compared with that of the other members at its start: etcd was started
// without its initial check, or by an earlier process of the agent.
func (b *Bootstrapper) Unchecked() bool { return !b.comparedStart.Load() }

// Compared says that the data of the running etcd was compared.
func (b *Bootstrapper) Compared() { b.comparedStart.Store(true) }
