package plan

import (
	"fmt"
	"strings"
)

// letGo is the command by which a person takes the finalizer away.
const letGo = `kubectl patch etcdcluster <name> --type json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`

// leavingWords report how far the way out of the group that was joined has come, and what a person can do where it does not get on.
func leavingWords(p picture) string {
	left := count(len(p.Record.Members))
	switch {
	case p.Foreground:
		return "deleted in the foreground: Kubernetes deletes the Pods and Leases although others are in the cluster that was joined, and misses " +
			"their votes; when that is done, the members come back on their volumes, to leave it"
	case hostsOf(p.Desired, p.Observed) == hostsBegun:
		return fmt.Sprintf("deleted while member %s was joining the running cluster: it leaves that once it is in. If it cannot come in, remove "+
			"it there with etcdctl member remove, where it is listed, and then let this EtcdCluster go: %s", p.Record.Seed, letGo)
	case p.RecordState != RecordFormed:
		return fmt.Sprintf("deleted while others are in the cluster that was joined, and its members cannot be reported to leave it: the record cannot "+
			"be used. Remove them there with etcdctl member remove, and then let this EtcdCluster go: %s", letGo)
	}
	return fmt.Sprintf("deleted: %s of it leave the cluster that was joined, one after another, each while those that stay are a healthy quorum%s; %s. "+
		"If that does not get on, remove them there with etcdctl member remove (%s), and then let this EtcdCluster go: %s",
		left, p.nextToLeave(), othersLeft(p), strings.Join(p.idsLeft(), " "), letGo)
}

// nextToLeave names the member that is on its way out.
func (p picture) nextToLeave() string {
	if p.Record.Retiring == nil {
		return ""
	}
	return ", " + p.Record.Retiring.Member + " now"
}

// idsLeft are the IDs of the members that are in the group still, as its leader listed them.
func (p picture) idsLeft() []string {
	var ids []string
	for _, m := range p.status.Members {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
