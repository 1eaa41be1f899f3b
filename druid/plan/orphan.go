package plan

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// orphanVerdict says what becomes of what bears a name.
type orphanVerdict uint8

const (
	orphanKeep orphanVerdict = 1 << iota
	orphanWait
	orphanReport // a person decides: the condition Degraded names the objects and the cure
	orphanMark   // inform the leader's agent that no one starts the learner
)

func (o orphanVerdict) String() string {
	return rules.Word(o, "Keep", "Wait", "Report", "Mark")
}

// orphanRows decide about what bears a member's name and has lost its counterpart. That something is absent is no proof
// that it may go: druid deletes nothing by this table.
var orphanRows = rules.New(orphanKeep, []rules.Row[orphanFacts, orphanVerdict]{
	{Name: "no-record", When: orphanFacts{usable: rules.No}, Verdict: orphanKeep,
		Why: "only a record that can be read says who is desired"},
	{Name: "retired", When: orphanFacts{usable: rules.Yes, retired: rules.Yes}, Verdict: orphanKeep,
		Why: "the leader's agent acknowledged the removal: what is left is cleaned up by that mark"},
	{Name: "desired", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, retired: rules.No, unstarted: rules.No}, Verdict: orphanKeep,
		Why: "druid makes again what it lacks: Lease, claim, Pod"},
	{Name: "desired-comes", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, retired: rules.No, unstarted: rules.Yes, lingers: rules.No}, Verdict: orphanKeep,
		Why: "its Pod will start the learner or replace it"},
	{Name: "desired-not-coming", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, retired: rules.No, unstarted: rules.Yes, lingers: rules.Yes, marked: rules.No}, Verdict: orphanMark,
		Why: "its Pod has not come up for long, and is not the one that added the learner: the leader's agent removes the learner"},
	{Name: "desired-not-coming-told", When: orphanFacts{usable: rules.Yes, listed: rules.Yes, retired: rules.No, unstarted: rules.Yes, lingers: rules.Yes, marked: rules.Yes}, Verdict: orphanKeep,
		Why: "the leader's agent knows"},
	{Name: "status-only", When: orphanFacts{usable: rules.Yes, listed: rules.No, retired: rules.No, objects: rules.No}, Verdict: orphanKeep,
		Why: "an entry of the status goes with the name in the record"},
	{Name: "orphan-seen", When: orphanFacts{usable: rules.Yes, listed: rules.No, retired: rules.No, objects: rules.Yes, lingers: rules.No}, Verdict: orphanWait,
		Why: "it may be on its way out, or the record on its way in"},
	{Name: "orphan", When: orphanFacts{usable: rules.Yes, listed: rules.No, retired: rules.No, objects: rules.Yes, lingers: rules.Yes}, Verdict: orphanReport,
		Why: "nothing proves that it is superfluous"},
})

// orphanFacts is all that the policy may look at.
type orphanFacts struct {
	// usable: the record can be read. listed: it lists the name.
	usable rules.YesNo `fact:"record can be read"`
	listed rules.YesNo
	// retired: the member's Lease acknowledges its removal, or that it never was to be one.
	retired rules.YesNo `fact:"removal acknowledged"`
	// objects: a Lease, claim or Pod of the cluster bears the name.
	objects rules.YesNo `fact:"objects bear the name"`
	// unstarted: the leader lists a learner at the name's peer URL that never started.
	unstarted rules.YesNo `fact:"its learner never started"`
	// lingers: druid saw it so for long.
	lingers rules.YesNo `fact:"unlisted, or without running Pod, for long"`
	// marked: the Lease says already that this learner is not coming.
	marked rules.YesNo `fact:"the Lease says so"`
}

func orphanFactsOf(m Member, o Observed) orphanFacts {
	learner := m.unstarted(o)
	return orphanFacts{
		usable:    rules.YesNoOf(o.RecordState&usableRecord != 0),
		listed:    rules.YesNoOf(m.Listed),
		retired:   rules.YesNoOf(m.retired(o)),
		objects:   rules.YesNoOf(m.ours()),
		unstarted: rules.YesNoOf(learner != "" && o.RecordState == RecordFormed && m.Lease == LeaseOurs && m.Readable),
		lingers:   rules.YesNoOf(m.Lingers),
		marked:    rules.YesNoOf(m.Says.Healing.NotComing == learner),
	}
}

// retired says whether what is left of the member goes by a mark of its own. Which raft group may acknowledge a removal is not
// known while the record is not one of a formed group.
func (m Member) retired(o Observed) bool {
	done := m.Says.Retire.State == leases.RetireDone
	return farewellOf(m, o) != farewellNone || done && (m.Listed || o.RecordState != RecordFormed)
}

// orphanProblem names the objects and the cure.
func orphanProblem(m Member, o Observed) (Problem, bool) {
	if orphanRows.Decide(orphanFactsOf(m, o)).Verdict != orphanReport {
		return Problem{}, false
	}
	var kinds, short []string
	for _, object := range []struct {
		there       bool
		kind, short string
	}{
		{m.Lease == LeaseOurs, "Lease", "lease"},
		{m.Claim&(ClaimPresent|ClaimTerminating) != 0, "PersistentVolumeClaim", "pvc"},
		{m.Pod&^(PodAbsent|PodForeign) != 0, "Pod", "pod"},
	} {
		if object.there {
			kinds, short = append(kinds, object.kind), append(short, object.short)
		}
	}
	return Problem{Reason: v1alpha1.ReasonOrphanedObjects, Message: fmt.Sprintf("%[1]s %[2]s: of this EtcdCluster, and no member that its record "+
		"lists. Nothing is deleted without proof that it is superfluous. If no one needs its data: kubectl delete %[3]s %[2]s",
		strings.Join(kinds, ", "), m.Name, strings.Join(short, ","))}, true
}
