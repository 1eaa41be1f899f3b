package plan

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
	OriginBlank                                 // it has succeeded, and does not tell what was saved
	OriginSaved

	anyOriginSnapshot = OriginAbsent | OriginUnfinished | OriginFailed | OriginBlank | OriginSaved
)

// The places.
const (
	OriginTold    OriginPlace = 1 << iota // the spec says in which store
	OriginOwn                             // it is where its EtcdCluster says
	OriginMoved                           // its EtcdCluster is backed up to another place by now
	OriginUnsaved                         // its EtcdCluster has no spec.backup
	OriginGone                            // there is no such EtcdCluster

	anyOriginPlace = OriginTold | OriginOwn | OriginMoved | OriginUnsaved | OriginGone
)

const (
	originWait  origin = iota // it changes by itself
	originStuck               // a person has to do something
	originFound
)

// origins decide whether it is known what a new cluster begins with whose spec names an EtcdSnapshot. Until it is, nothing of it is made.
var origins = []struct {
	name     string
	snapshot OriginSnapshot
	place    OriginPlace
	origin   origin
	why      string
}{
	{"snapshot-absent", OriginAbsent, anyOriginPlace, originWait, "it may be about to be created, like the cluster"},
	{"snapshot-unfinished", OriginUnfinished, anyOriginPlace, originWait, "it ends by itself"},
	{"snapshot-failed", OriginFailed, anyOriginPlace, originStuck, "an EtcdSnapshot never changes its outcome"},
	{"snapshot-blank", OriginBlank, anyOriginPlace, originStuck, "an EtcdSnapshot never changes its outcome"},
	{"cluster-gone", OriginSaved, OriginGone, originStuck, "nobody knows the store, nor the Secrets for it"},
	{"cluster-unsaved", OriginSaved, OriginUnsaved, originStuck, "nobody knows the store, nor the Secrets for it"},
	{"backup-moved", OriginSaved, OriginMoved, originStuck, "another store would be searched, and hold nothing, or something else"},
	{"found", OriginSaved, OriginTold | OriginOwn, originFound, "all is known that a restore needs, and is kept with the spec"},
}

// OriginFacts is all that the policy may look at.
type OriginFacts struct {
	Snapshot OriginSnapshot
	Place    OriginPlace
}

func judgeOrigin(f OriginFacts) (origin, string) {
	for _, r := range origins {
		if r.snapshot&f.Snapshot != 0 && r.place&f.Place != 0 {
			return r.origin, r.name
		}
	}
	return originStuck, "uncovered"
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
	verdict, rule := judgeOrigin(f)
	if verdict == originFound {
		return Origin{Rule: rule}
	}
	return Origin{Rule: rule, Words: words(rule), Stuck: verdict == originStuck}
}

// known says whether it is known what the cluster begins with.
func (o Origin) known() rules.YesNo { return rules.YesNoOf(o.Words == "") }
