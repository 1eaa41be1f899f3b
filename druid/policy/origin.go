package policy

import "github.com/etcd-druid/druid/internal/rules"

type (
	// OriginSnapshot is how the EtcdSnapshot was found that a new cluster is to begin with.
	OriginSnapshot uint8
	// OriginPlace says whether it is known where its backup is.
	OriginPlace uint8

	origin uint8 // what becomes of it: no cell holds it
)

// The states of the EtcdSnapshot.
const (
	OriginAbsent     OriginSnapshot = 1 << iota // there is none of that name, or it is being deleted
	OriginUnfinished                            // it has neither succeeded nor failed
	OriginFailed                                // it has failed
	OriginBlank                                 // it has succeeded, and does not report what was saved
	OriginSaved
)

func (o OriginSnapshot) String() string {
	return rules.Word(o, "absent", "unfinished", "failed", "blank", "saved")
}

// The places.
const (
	OriginReported OriginPlace = 1 << iota // the spec says in which store
	OriginOwn                              // it is where its EtcdCluster says
	OriginMoved                            // its EtcdCluster is backed up to another place by now
	OriginUnsaved                          // its EtcdCluster has no spec.backup
	OriginGone                             // there is no such EtcdCluster
)

func (o OriginPlace) String() string {
	return rules.Word(o, "reported by the spec", "where its cluster says", "left by its cluster", "its cluster is not backed up", "its cluster is gone")
}

const (
	originWait  origin = iota // it changes by itself
	originStuck               // a person has to do something
	originFound
)

func (o origin) String() string {
	return [...]string{"Wait", "Degraded", "Restore"}[o]
}

// origins decide whether it is known what a new cluster begins with whose spec names an EtcdSnapshot. Until it is, nothing of it is made.
var origins = rules.New(originStuck, []rules.Row[OriginFacts, origin]{
	{Name: "snapshot-absent", When: OriginFacts{Snapshot: OriginAbsent}, Verdict: originWait,
		Why: "the EtcdSnapshot might be created soon, like the cluster"},
	{Name: "snapshot-unfinished", When: OriginFacts{Snapshot: OriginUnfinished}, Verdict: originWait,
		Why: "the Pod ends by itself"},
	{Name: "snapshot-failed", When: OriginFacts{Snapshot: OriginFailed}, Verdict: originStuck,
		Why: "an EtcdSnapshot never changes its outcome"},
	{Name: "snapshot-blank", When: OriginFacts{Snapshot: OriginBlank}, Verdict: originStuck,
		Why: "an EtcdSnapshot never changes its outcome"},
	{Name: "cluster-gone", When: OriginFacts{Snapshot: OriginSaved, Place: OriginGone}, Verdict: originStuck,
		Why: "the store and its Secrets are not known"},
	{Name: "cluster-unsaved", When: OriginFacts{Snapshot: OriginSaved, Place: OriginUnsaved}, Verdict: originStuck,
		Why: "the store and its Secrets are not known"},
	{Name: "backup-moved", When: OriginFacts{Snapshot: OriginSaved, Place: OriginMoved}, Verdict: originStuck,
		Why: "another store would contain nothing or other backups"},
	{Name: "found", When: OriginFacts{Snapshot: OriginSaved, Place: OriginReported | OriginOwn}, Verdict: originFound,
		Why: "everything that the restore needs is known and stored with the spec"},
})

// OriginFacts is all that the policy may look at.
type OriginFacts struct {
	Snapshot OriginSnapshot `fact:"the EtcdSnapshot"`
	Place    OriginPlace    `fact:"its backup"`
}

// Origin is what an EtcdSnapshot is to a cluster that is to begin with it. The zero Origin is that of a cluster which begins otherwise, or has
// begun.
type Origin struct {
	// Rule by which it was judged. Words say, as a sentence, what is waited for; empty where it is known what the cluster begins with.
	Rule, Words string
	// Stuck says that a person has to do something.
	Stuck bool
}

// JudgeOrigin decides, and takes the words of the rule from words.
func JudgeOrigin(f OriginFacts, words func(rule string) string) Origin {
	d := origins.Decide(f)
	if d.Verdict == originFound {
		return Origin{Rule: d.Rule}
	}
	return Origin{Rule: d.Rule, Words: words(d.Rule), Stuck: d.Verdict == originStuck}
}

// known says whether it is known what the cluster begins with.
func (o Origin) known() rules.YesNo { return rules.YesNoOf(o.Words == "") }
