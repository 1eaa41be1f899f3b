package policy

import (
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// labelVerdict is the decision about a label of a Pod.
type labelVerdict uint8

const (
	labelKeep labelVerdict = 1 << iota
	labelSet
	labelClear
)

func (l labelVerdict) String() string {
	return rules.Word(l, "Keep", "Set", "Clear")
}

// says is what the Lease of a member reports about its role.
type says uint8

const (
	reportsVoter   says = 1 << iota
	reportsOther        // a learner, or a member that never was in the cluster
	reportsNothing      // absent, unreadable, or never written by an agent
)

func (s says) String() string {
	return rules.Word(s, "voter", "other", "nothing")
}

const anyLiveness = leases.Live | leases.Stale | leases.Never | leases.Unknown

// labelFacts is the complete input of servingRows and voterRows.
type labelFacts struct {
	cutOff     rules.YesNo     `fact:"clients cut off"` // by spec.clientService.serving, or for a restore in place
	marked     rules.YesNo     `fact:"cut off for this plan"`
	recovering rules.YesNo     `fact:"record says Recovering"`
	leaving    rules.YesNo     // the Pod terminates, this plan deletes it, or its member is being removed
	out        rules.YesNo     `fact:"acknowledged to be out"` // the raft group acknowledged that the member is out of it
	says       says            `fact:"Lease says"`
	liveness   leases.Liveness `fact:"Lease is"`
	formed     rules.YesNo     `fact:"record says Formed"` // the record says Formed
	etcdReady  rules.YesNo     `fact:"etcd ready"`         // the etcd container is ready
	nodeLost   rules.YesNo     `fact:"node lost"`
	// differs: the Lease says that the data of the member differs from that of a majority. If half of the members or more have
	// that mark, it counts for none of them.
	differs rules.YesNo `fact:"data differs"`
	// obscure: the state of half of the members or more is uncertain.
	obscure rules.YesNo `fact:"half or more unknown"`
}

// servingRows decide which Pods receive clients. An unknown state never empties the Service: if half of the members or
// more are unknown, no Pod is taken out. A stale Lease and a ready etcd mean that only the agent failed.
var servingRows = rules.New(labelKeep, []rules.Row[labelFacts, labelVerdict]{
	{Name: "cut-off", When: labelFacts{cutOff: rules.Yes}, Verdict: labelClear,
		Why: "you set spec.clientService.serving to false, or you approved a restore in place"},
	{Name: "recovering", When: labelFacts{recovering: rules.Yes}, Verdict: labelClear,
		Why: "a client must not write to a raft group that is about to be replaced"},
	{Name: "leaving", When: labelFacts{leaving: rules.Yes}, Verdict: labelClear},
	{Name: "cut-off-ends", When: labelFacts{marked: rules.Yes}, Verdict: labelKeep,
		Why: "clients were cut off for a plan that the record still has. druid ends the plan there before it serves them"},
	{Name: "data-differs", When: labelFacts{leaving: rules.No, differs: rules.Yes, obscure: rules.No}, Verdict: labelClear,
		Why: "a client must not read data that a majority of all voters does not have"},
	{Name: "data-differs-others-unknown", When: labelFacts{leaving: rules.No, differs: rules.Yes}, Verdict: labelKeep},
	{Name: "voter-serves", When: labelFacts{leaving: rules.No, says: reportsVoter, liveness: leases.Live, formed: rules.Yes, etcdReady: rules.Yes},
		Verdict: labelSet},
	{Name: "half-unknown", When: labelFacts{leaving: rules.No, obscure: rules.Yes}, Verdict: labelKeep},
	{Name: "etcd-not-ready", When: labelFacts{leaving: rules.No, etcdReady: rules.No, nodeLost: rules.No, obscure: rules.No}, Verdict: labelClear},
	{Name: "lease-says-otherwise", When: labelFacts{leaving: rules.No, says: reportsOther, liveness: leases.Live, obscure: rules.No}, Verdict: labelClear},
	{Name: "node-lost", When: labelFacts{leaving: rules.No, liveness: leases.Stale, nodeLost: rules.Yes, obscure: rules.No}, Verdict: labelClear},
	{Name: "agent-silent", When: labelFacts{leaving: rules.No, liveness: leases.Stale, etcdReady: rules.Yes, nodeLost: rules.No, obscure: rules.No},
		Verdict: labelKeep},
	{Name: "not-certain", When: labelFacts{leaving: rules.No, obscure: rules.No}, Verdict: labelKeep},
})

// voterRows decide which Pods the PodDisruptionBudget counts.
var voterRows = rules.New(labelKeep, []rules.Row[labelFacts, labelVerdict]{
	{Name: "removed", When: labelFacts{out: rules.Yes}, Verdict: labelClear},
	{Name: "votes", When: labelFacts{out: rules.No, says: reportsVoter, liveness: leases.Live}, Verdict: labelSet},
	{Name: "no-longer-votes", When: labelFacts{out: rules.No, says: reportsOther, liveness: leases.Live}, Verdict: labelClear},
	{Name: "not-certain", When: labelFacts{out: rules.No}, Verdict: labelKeep},
})

func labelFactsOf(m Member, leaving bool, e Evaluation) labelFacts {
	o := e.Observed
	f := labelFacts{
		cutOff:     rules.YesNoOf(e.CutOff || e.restore.cutsOff()),
		marked:     rules.YesNoOf(m.cutOff(o)),
		recovering: rules.YesNoOf(o.RecordState == RecordRecovering),
		leaving:    rules.YesNoOf(leaving || m.Pod == PodTerminating),
		says:       reportsNothing,
		out:        rules.YesNoOf(m.isOut(o)),
		liveness:   m.Liveness,
		formed:     rules.YesNoOf(o.RecordState == RecordFormed),
		etcdReady:  rules.YesNoOf(m.EtcdReady),
		nodeLost:   rules.YesNoOf(m.NodeLost),
		differs:    rules.YesNoOf(m.dataDiffers() && 2*countDiffering(e.listed) < len(e.listed)),
		obscure:    rules.YesNoOf(2*obscure(e.listed) >= len(e.listed)),
	}
	if m.Lease == LeaseOurs && m.Readable && m.Liveness&(leases.Live|leases.Stale) != 0 {
		f.says = reportsOther
		if m.votes() && m.ofGroup(o) {
			f.says = reportsVoter
		}
	}
	return f
}

// dataDiffers reports whether the Lease says that the data of the member differs from that of a majority of all voters.
func (m Member) dataDiffers() bool {
	return m.Lease == LeaseOurs && m.Readable && m.Reports.DataDiffers()
}

// countDiffering counts such members.
func countDiffering(listed []Member) int {
	n := 0
	for _, m := range listed {
		if m.dataDiffers() {
			n++
		}
	}
	return n
}

// obscure counts the members whose state is uncertain: the agent does not renew its Lease, and no reachable kubelet
// reports that etcd is not ready.
func obscure(listed []Member) int {
	n := 0
	for _, m := range listed {
		if m.Liveness != leases.Live && !m.down() {
			n++
		}
	}
	return n
}

// undecided reports whether the data of the members differs, and no majority of all voters has the same.
func (o Observed) undecided() bool {
	return o.RecordState == RecordFormed && o.Record.Undecided != (leases.Undecided{})
}

func labelStep(m Member, f labelFacts, e Evaluation, add func(Step)) {
	if m.Pod&(PodAbsent|PodForeign|PodEnded) != 0 {
		return
	}
	serving, voter := servingRows.Decide(f), voterRows.Decide(f)
	leader := leaderRows.Decide(leaderFactsOf(m, serving.Verdict, e))
	step := Step{Kind: LabelPod, Stage: StageLabels, Member: m.Name, PodUID: m.PodUID}
	if step.Leader = labelChange(m.Leader, leader.Verdict); step.Leader != nil {
		step.Rule = leader.Rule
	}
	if step.Voter = labelChange(m.Voter, voter.Verdict); step.Voter != nil {
		step.Rule = voter.Rule
	}
	if step.Serving = labelChange(m.Serving, serving.Verdict); step.Serving != nil {
		step.Rule = serving.Rule
	}
	markStep(&step, m, e)
	if step.Rule != "" {
		add(step)
	}
}

// markStep marks a Pod from which clients are cut off for a restore in place, and removes the mark when the Pod serves them again. Both
// are confirmed by live reads, because a later restore relies on that mark.
func markStep(step *Step, m Member, e Evaluation) {
	mark := e.CutFor()
	switch serves := step.Serving != nil && *step.Serving; {
	case mark != "" && m.CutFor != mark:
		step.Rule, step.Object = e.restore.rule, mark
	case mark == "" && serves && m.CutFor != "":
	default:
		return
	}
	step.Mark, step.Irreversible = &mark, true
}

// labelChange returns the value to write, or nil if the label is right.
func labelChange(has bool, verdict labelVerdict) *bool {
	if want := verdict == labelSet; verdict != labelKeep && want != has {
		return &want
	}
	return nil
}

// leadership is what the Leases report about whether a member leads.
type leadership uint8

const (
	leadershipOwn     leadership = 1 << iota // its renewed Lease calls it the leader, and no other one does with a newer term
	leadershipOther                          // its renewed Lease calls it something else, or that of another member calls that one the leader
	leadershipUnknown                        // its Lease is not renewed, and no other one calls its member the leader
)

func (l leadership) String() string {
	return rules.Word(l, "this member", "not this member", "unknown")
}

// leaderFacts is the complete input of leaderRows.
type leaderFacts struct {
	wanted rules.YesNo `fact:"leader Service requested"`
	serves rules.YesNo `fact:"receives clients"` // the Pod has the label for the client Service after this pass
	leads  leadership  `fact:"leader"`
}

// leaderRows decide which Pod is in the Service of the leader. A cluster without this Service has no such label, so that an
// election costs it no write.
var leaderRows = rules.New(labelKeep, []rules.Row[leaderFacts, labelVerdict]{
	{Name: "leader-not-requested", When: leaderFacts{wanted: rules.No}, Verdict: labelClear,
		Why: "the spec requests no Service of the leader"},
	{Name: "leader-without-clients", When: leaderFacts{wanted: rules.Yes, serves: rules.No}, Verdict: labelClear,
		Why: "a leader to which the client Service sends no clients gets none from here"},
	{Name: "leads", When: leaderFacts{wanted: rules.Yes, serves: rules.Yes, leads: leadershipOwn}, Verdict: labelSet},
	{Name: "no-longer-leads", When: leaderFacts{wanted: rules.Yes, serves: rules.Yes, leads: leadershipOther}, Verdict: labelClear},
	{Name: "leader-not-certain", When: leaderFacts{wanted: rules.Yes, serves: rules.Yes, leads: leadershipUnknown}, Verdict: labelKeep,
		Why: "an agent that fails does not empty the Service, and a member that leads no more forwards writes"},
})

// leaderFactsOf takes the decision about the label of the client Service.
func leaderFactsOf(m Member, serving labelVerdict, e Evaluation) leaderFacts {
	return leaderFacts{
		wanted: rules.YesNoOf(e.LeaderWanted),
		serves: rules.YesNoOf(serving == labelSet || serving == labelKeep && m.Serving),
		leads:  leadershipOf(m, e.listed),
	}
}

// leadershipOf compares what the members report. Of two that call themselves leader, the one with the older term has not
// received the newer term yet.
func leadershipOf(m Member, listed []Member) leadership {
	for _, other := range listed {
		if other.Name != m.Name && other.leads() && (!m.leads() || other.Reports.Raft.Term > m.Reports.Raft.Term) {
			return leadershipOther
		}
	}
	switch {
	case m.leads():
		return leadershipOwn
	case m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live:
		return leadershipOther
	default:
		return leadershipUnknown
	}
}
