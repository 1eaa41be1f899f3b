package policy

import "github.com/etcd-druid/druid/internal/rules"

type (
	// OriginSnapshot is the observed state of the EtcdSnapshot from which a new cluster starts.
	OriginSnapshot uint8
	// OriginPlace reports whether the location of its backup is known.
	OriginPlace uint8

	origin uint8 // the resulting origin
)

// The states of the EtcdSnapshot.
const (
	OriginAbsent     OriginSnapshot = 1 << iota // it does not exist, or is being deleted
	OriginUnfinished                            // it has neither succeeded nor failed
	OriginFailed                                // it has failed
	OriginBlank                                 // it has succeeded without reporting what was saved
	OriginSaved
)

func (o OriginSnapshot) String() string {
	return rules.Word(o, "absent", "unfinished", "failed", "blank", "saved")
}

// The places.
const (
	OriginReported OriginPlace = 1 << iota // the spec says in which store
	OriginOwn                              // it is where the EtcdSnapshot or its EtcdCluster says
	OriginMoved                            // its EtcdCluster is backed up to another place by now
	OriginUnsaved                          // its EtcdCluster has no spec.backup
	OriginGone                             // the EtcdCluster does not exist
)

func (o OriginPlace) String() string {
	return rules.Word(o, "reported by the spec", "where it or its cluster says", "left by its cluster", "its cluster is not backed up", "its cluster is gone")
}

const (
	originWait  origin = iota // it changes by itself
	originStuck               // the user must act
	originFound
)

func (o origin) String() string {
	return [...]string{"Wait", "Degraded", "Restore"}[o]
}

// origins decide whether it is known which backup a new cluster starts from, if its spec names an EtcdSnapshot. Until
// then, druid creates nothing of the cluster.
var origins = rules.New(originStuck, []rules.Row[OriginFacts, origin]{
	{Name: "snapshot-absent", When: OriginFacts{Snapshot: OriginAbsent}, Verdict: originWait,
		Why: "the EtcdSnapshot might be created soon, like the cluster"},
	{Name: "snapshot-unfinished", When: OriginFacts{Snapshot: OriginUnfinished}, Verdict: originWait,
		Why: "the EtcdSnapshot completes by itself"},
	{Name: "snapshot-failed", When: OriginFacts{Snapshot: OriginFailed}, Verdict: originStuck,
		Why: "an EtcdSnapshot never changes its outcome"},
	{Name: "snapshot-blank", When: OriginFacts{Snapshot: OriginBlank}, Verdict: originStuck,
		Why: "an EtcdSnapshot never changes its outcome"},
	{Name: "cluster-gone", When: OriginFacts{Snapshot: OriginSaved, Place: OriginGone}, Verdict: originStuck,
		Why: "the store and its Secrets are not known"},
	{Name: "cluster-unsaved", When: OriginFacts{Snapshot: OriginSaved, Place: OriginUnsaved}, Verdict: originStuck,
		Why: "the store and its Secrets are not known"},
	{Name: "backup-moved", When: OriginFacts{Snapshot: OriginSaved, Place: OriginMoved}, Verdict: originStuck,
		Why: "a restore would search another store, which has no such backup or another one"},
	{Name: "found", When: OriginFacts{Snapshot: OriginSaved, Place: OriginReported | OriginOwn}, Verdict: originFound,
		Why: "everything that the restore needs is known and stored with the spec"},
})

// OriginFacts is the complete input of origins.
type OriginFacts struct {
	Snapshot OriginSnapshot `fact:"the EtcdSnapshot"`
	Place    OriginPlace    `fact:"its backup"`
}

// Origin is the state of the EtcdSnapshot from which a cluster starts. It is zero for a cluster that starts without
// one, or has already started.
type Origin struct {
	// Rule of the decision. Words say, as a sentence, what the cluster waits for. They are empty if the backup is
	// known.
	Rule, Words string
	// Stuck reports whether user action is required.
	Stuck bool
}

// JudgeOrigin decides, and gets the message of the rule from words.
func JudgeOrigin(f OriginFacts, words func(rule string) string) Origin {
	d := origins.Decide(f)
	if d.Verdict == originFound {
		return Origin{Rule: d.Rule}
	}
	return Origin{Rule: d.Rule, Words: words(d.Rule), Stuck: d.Verdict == originStuck}
}

// known reports whether it is known what the cluster starts from.
func (o Origin) known() rules.YesNo { return rules.YesNoOf(o.Words == "") }
