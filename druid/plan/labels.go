package plan

import "github.com/etcd-druid/druid/leases"

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
	leaving   Answer // the Pod terminates, this plan deletes it, or its member is on its way out
	out       Answer // the raft group acknowledged that the member is out of it
	says      says
	liveness  leases.Liveness
	formed    Answer // the record says Formed
	etcdReady Answer // the etcd container is ready
	nodeLost  Answer
	// obscure: nothing certain is known of half the members or more.
	obscure Answer
}

// servingRows decide who receives clients. What is merely unknown never empties the Service: with half or more unknown
// nothing is taken out, and a stale Lease beside a ready etcd is only a dead agent.
var servingRows = []struct {
	name                                 string
	leaving                              Answer
	says                                 says
	liveness                             leases.Liveness
	formed, etcdReady, nodeLost, obscure Answer
	verdict                              labelVerdict
}{
	{"leaving", Yes, anySays, anyLiveness, anyAnswer, anyAnswer, anyAnswer, anyAnswer, labelClear},
	{"voter-serves", No, saysVoter, leases.Live, Yes, Yes, anyAnswer, anyAnswer, labelSet},
	{"half-unknown", No, anySays, anyLiveness, anyAnswer, anyAnswer, anyAnswer, Yes, labelKeep},
	{"etcd-not-ready", No, anySays, anyLiveness, anyAnswer, No, No, No, labelClear},
	{"lease-says-otherwise", No, saysOther, leases.Live, anyAnswer, anyAnswer, anyAnswer, No, labelClear},
	{"node-lost", No, anySays, leases.Stale, anyAnswer, anyAnswer, Yes, No, labelClear},
	{"agent-silent", No, anySays, leases.Stale, anyAnswer, Yes, No, No, labelKeep},
	{"not-certain", No, anySays, anyLiveness, anyAnswer, anyAnswer, anyAnswer, No, labelKeep},
}

// voterRows decide which Pods the PodDisruptionBudget counts.
var voterRows = []struct {
	name     string
	out      Answer
	says     says
	liveness leases.Liveness
	verdict  labelVerdict
}{
	{"removed", Yes, anySays, anyLiveness, labelClear},
	{"votes", No, saysVoter, leases.Live, labelSet},
	{"votes-no-more", No, saysOther, leases.Live, labelClear},
	{"not-certain", No, anySays, anyLiveness, labelKeep},
}

func labelFactsOf(m Member, leaving bool, o Observed, listed []Member) labelFacts {
	f := labelFacts{
		leaving:   AnswerOf(leaving || m.Pod == PodTerminating),
		says:      saysNothing,
		out:       AnswerOf(m.acknowledged(o) && (!m.Listed || o.Record.Retiring.Orders(m.Name, m.Says.Retire))),
		liveness:  m.Liveness,
		formed:    AnswerOf(o.RecordState == RecordFormed),
		etcdReady: AnswerOf(m.EtcdReady),
		nodeLost:  AnswerOf(m.NodeLost),
		obscure:   AnswerOf(2*obscure(listed) >= len(listed)),
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
