package start

import (
	"context"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// observePeerNames finds out, for a new Pod whose certificate for connecting to peers has names, whether the running etcds of the other
// members would refuse it. Their Leases say how these were started. A member that does not listen refuses nothing: when a quorum is lost,
// this one must start, or report its disk. What is not known changes nothing: without Kubernetes, intact data resumes.
func (b *Bootstrapper) observePeerNames(ctx context.Context) {
	if !b.certs.NamesDepend() {
		return
	}
	kubernetes, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	record, _, err := b.store.Record(kubernetes)
	if err != nil {
		return
	}
	var compare []string
	unknown := 0
	for _, name := range record.Members {
		if name == b.cfg.Member {
			continue
		}
		switch member, err := b.store.Member(kubernetes, name); {
		case err != nil:
			unknown++
		case member.TLS.Peer.ComparesNames:
			compare = append(compare, b.host(name))
		}
	}
	refuse := len(b.listening(ctx, compare))
	if answer := OthersCompareNames(len(record.Members), refuse, unknown); answer != rules.Unknown {
		b.certs.OthersCompareNames(answer == rules.Yes)
	}
}

// OthersCompareNames says whether the members that run refuse a peer whose certificate has names. They do if the Leases
// of a quorum say so, counting only members that listen. Of two members, one is enough.
func OthersCompareNames(members, compare, unknown int) rules.Answer {
	needed := max(1, min(membership.Quorum(members), members-1))
	switch {
	case compare >= needed:
		return rules.Yes
	case compare+unknown < needed:
		return rules.No
	default:
		return rules.Unknown
	}
}
