package start

import (
	"github.com/etcd-druid/druid/agent/launch"
)

// endedByItself reports whether the previous etcd ended with an error soon after its start. The initial check of etcd ends it so if the
// data of any other member differs, also if that member is the odd one. On intact data, the next etcd starts without that check, and the
// agent compares all voters instead (duties.OddMember).
func endedByItself(report launch.Report) bool {
	exit := report.LastExit
	return exit != nil && !report.Clean && exit.Signal == "" && exit.Code > 0 && exit.RanFor <= soonAfter
}

// Unchecked reports whether the data of the running etcd was not compared with that of the other members at its start: etcd was started
// without its initial check, or by an earlier process of the agent.
func (b *Bootstrapper) Unchecked() bool { return !b.comparedStart.Load() }

// Compared says that the data of the running etcd was compared.
func (b *Bootstrapper) Compared() { b.comparedStart.Store(true) }
