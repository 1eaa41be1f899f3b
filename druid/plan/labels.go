package plan

import (
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// labelVerdict says what becomes of a label of a Pod.
type labelVerdict uint8

const (
	labelKeep labelVerdict = 1 << iota
	labelSet
	labelClear
)

// says is what a member's Lease tells of its member.
type says uint8

const (
	saysVoter   says = 1 << iota
	saysOther        // a learner, or a member that never was in the cluster
	saysNothing      // absent, unreadable, or never written by an agent

	anySays = saysVoter | saysOther | saysNothing
)

const anyLiveness = leases.Live | leases.Stale | leases.Never | leases.Unknown

// labelFacts is all that the policies of the two labels may look at.
type labelFacts struct {
	leaving   rules.YesNo // the Pod terminates, this plan deletes it, or its member is on its way out
	out       rules.YesNo // the raft group acknowledged that the member is out of it
	says      says
	liveness  leases.Liveness
	formed    rules.YesNo // the record says Formed
	etcdReady rules.YesNo // the etcd container is ready
	nodeLost  rules.YesNo
	// obscure: nothing certain is known of half the members or more.
	obscure rules.YesNo
}

// servingRows decide who receives clients. What is merely unknown never empties the Service: with half or more unknown
// nothing is taken out, and a stale Lease beside a ready etcd is only a dead agent.
var servingRows = []struct {
	name                                 string
	leaving                              rules.YesNo
	says                                 says
	liveness                             leases.Liveness
	formed, etcdReady, nodeLost, obscure rules.YesNo
	verdict                              labelVerdict
}{
	{"leaving", rules.Yes, anySays, anyLiveness, anyAnswer, anyAnswer, anyAnswer, anyAnswer, labelClear},
	{"voter-serves", rules.No, saysVoter, leases.Live, rules.Yes, rules.Yes, anyAnswer, anyAnswer, labelSet},
	{"half-unknown", rules.No, anySays, anyLiveness, anyAnswer, anyAnswer, anyAnswer, rules.Yes, labelKeep},
	{"etcd-not-ready", rules.No, anySays, anyLiveness, anyAnswer, rules.No, rules.No, rules.No, labelClear},
	{"lease-says-otherwise", rules.No, saysOther, leases.Live, anyAnswer, anyAnswer, anyAnswer, rules.No, labelClear},
	{"node-lost", rules.No, anySays, leases.Stale, anyAnswer, anyAnswer, rules.Yes, rules.No, labelClear},
	{"agent-silent", rules.No, anySays, leases.Stale, anyAnswer, rules.Yes, rules.No, rules.No, labelKeep},
	{"not-certain", rules.No, anySays, anyLiveness, anyAnswer, anyAnswer, anyAnswer, rules.No, labelKeep},
}

// voterRows decide which Pods the PodDisruptionBudget counts.
var voterRows = []struct {
	name     string
	out      rules.YesNo
	says     says
	liveness leases.Liveness
	verdict  labelVerdict
}{
	{"removed", rules.Yes, anySays, anyLiveness, labelClear},
	{"votes", rules.No, saysVoter, leases.Live, labelSet},
	{"votes-no-more", rules.No, saysOther, leases.Live, labelClear},
	{"not-certain", rules.No, anySays, anyLiveness, labelKeep},
}

func labelFactsOf(m Member, leaving bool, o Observed, listed []Member) labelFacts {
	f := labelFacts{
		leaving:   rules.YesNoOf(leaving || m.Pod == PodTerminating),
		says:      saysNothing,
		out:       rules.YesNoOf(m.acknowledged(o) && (!m.Listed || o.Record.Retiring.Orders(m.Name, m.Says.Retire))),
		liveness:  m.Liveness,
		formed:    rules.YesNoOf(o.RecordState == RecordFormed),
		etcdReady: rules.YesNoOf(m.EtcdReady),
		nodeLost:  rules.YesNoOf(m.NodeLost),
		obscure:   rules.YesNoOf(2*obscure(listed) >= len(listed)),
	}
	if m.Lease == LeaseOurs && m.Readable && m.Liveness&(leases.Live|leases.Stale) != 0 {
		f.says = saysOther
		if m.votes() {
			f.says = saysVoter
		}
	}
	return f
}

// obscure counts the members of which nothing certain is known: neither does the agent renew its Lease, nor does a kubelet
// that is heard of say that etcd is not ready.
func obscure(listed []Member) int {
	n := 0
	for _, m := range listed {
		if m.Liveness != leases.Live && !m.down() {
			n++
		}
	}
	return n
}

func judgeServing(f labelFacts) (labelVerdict, string) {
	for _, r := range servingRows {
		if r.leaving&f.leaving != 0 && r.says&f.says != 0 && r.liveness&f.liveness != 0 && r.formed&f.formed != 0 &&
			r.etcdReady&f.etcdReady != 0 && r.nodeLost&f.nodeLost != 0 && r.obscure&f.obscure != 0 {
			return r.verdict, r.name
		}
	}
	return labelKeep, "uncovered"
}

func judgeVoter(f labelFacts) (labelVerdict, string) {
	for _, r := range voterRows {
		if r.out&f.out != 0 && r.says&f.says != 0 && r.liveness&f.liveness != 0 {
			return r.verdict, r.name
		}
	}
	return labelKeep, "uncovered"
}
