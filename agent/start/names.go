package start

import (
	"context"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// observePeerNames finds out, for a new Pod whose certificate for connecting to peers has names, whether the running etcds of the other
// members would refuse it. Their Leases say how these were started. What is not known changes nothing: without Kubernetes, intact data
// resumes.
func (b *Bootstrapper) observePeerNames(ctx context.Context) {
	if !b.certs.NamesDepend() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	record, _, err := b.store.Record(ctx)
	if err != nil {
		return
	}
	compare, unknown := 0, 0
	for _, name := range record.Members {
		if name == b.cfg.Member {
			continue
		}
		switch member, err := b.store.Member(ctx, name); {
		case err != nil:
			unknown++
		case member.TLS.Peer.ComparesNames:
			compare++
		}
	}
	if answer := OthersCompareNames(len(record.Members), compare, unknown); answer != rules.Unknown {
		b.certs.OthersCompareNames(answer == rules.Yes)
	}
}

// OthersCompareNames says whether the members that run refuse a peer whose certificate has names. They do if the Leases
// of a quorum say so. The Lease of a member that is lost says what it did: when all other members start again, they
// write theirs, and those of the lost ones are no quorum. Of two members, one is enough.
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
