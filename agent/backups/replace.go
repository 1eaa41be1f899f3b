package backups

import (
	"context"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
)

// fewBroken is how many fulls may be found broken in a row before it is no matter of this member alone: the one that was broken
// first, and the one that replaced it.
const fewBroken = 2

// Replacement is what is done about a newest full that was found to be broken.
type Replacement string

// The replacements. HandOn moves leadership to another member: the database of this one may have a damaged page.
const (
	NoReplacement Replacement = "Nothing"
	ReplaceNow    Replacement = "Full"
	HandOn        Replacement = "HandOn"
	ReplaceLater  Replacement = "Rest"
)

// ReplaceFacts are all that DecideReplacement may look at.
type ReplaceFacts struct {
	// Broken: the newest full was restored, and found to be broken.
	Broken rules.YesNo `fact:"newest full is broken"`
	// Repeated: this leader took a full for that already.
	Repeated rules.YesNo `fact:"this leader replaced one"`
	// Few: no more than fewBroken fulls were taken since the last one that was proven, and this leader has not handed on yet.
	Few rules.YesNo `fact:"two at most, not handed on"`
	// Rested: the pause since this leader's last such full is over.
	Rested rules.YesNo `fact:"pause is over"`
}

// replaceRules say what follows a full that was found to be broken. First match wins.
var replaceRules = rules.New(NoReplacement, []rules.Row[ReplaceFacts, Replacement]{
	{Name: "sound", When: ReplaceFacts{Broken: rules.No}, Verdict: NoReplacement,
		Why: "the newest full is not known to be broken"},
	{Name: "replace", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.No}, Verdict: ReplaceNow,
		Why: "what is saved leads to no state that the cluster had"},
	{Name: "hand-on", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.Yes}, Verdict: HandOn,
		Why: "two in a row may come from a damaged page of this member's database; another member's may be whole"},
	{Name: "replace-later", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.No, Rested: rules.No}, Verdict: ReplaceLater,
		Why: "fulls one after the other would fill the store and cure nothing"},
	{Name: "replace-again", When: ReplaceFacts{Broken: rules.Yes, Repeated: rules.Yes, Few: rules.No, Rested: rules.Yes}, Verdict: ReplaceNow,
		Why: "what made the fulls before it broken may have passed"},
})

// DecideReplacement says what to do about the newest full, and by which rule.
func DecideReplacement(f ReplaceFacts) rules.Decision[Replacement] { return replaceRules.Decide(f) }

// replacing is what a session remembers of the fulls that were found to be broken.
type replacing struct {
	// taken are the fulls that this session took for that.
	taken attempts
	// fulls are the keys of the lineage's full backups, oldest first: those of the last listing, and those that this session took since.
	fulls []string
	// handed says that leadership was to move for broken full backups.
	handed bool
}

// unverified counts the full backups that are newer than the last verified one. The verdict can come at any time, so it is counted again for
// each decision.
func (r replacing) unverified(proven string) (n int) {
	for i := len(r.fulls) - 1; i >= 0 && r.fulls[i] != proven; i-- {
		n++
	}
	return n
}

func keysOf(fulls []chain.Full) (keys []string) {
	for _, full := range fulls {
		keys = append(keys, full.Key)
	}
	return keys
}

// replacement of the newest full. A full that is proven ends what was remembered.
func (s *session) replacement(now time.Time) Replacement {
	broken := s.inform.disproved(s.newest.Key)
	if !broken && s.newest.Key != "" && s.inform.proven() == s.newest.Key {
		s.replacing.taken.succeeded()
		s.replacing.handed = false
	}
	return DecideReplacement(ReplaceFacts{
		Broken: rules.YesNoOf(broken), Repeated: rules.YesNoOf(s.replacing.taken.failures > 0),
		Few:    rules.YesNoOf(s.replacing.unverified(s.inform.proven()) <= fewBroken && !s.replacing.handed),
		Rested: rules.YesNoOf(!s.replacing.taken.resting(now)),
	}).Verdict
}

// handOn moves leadership once for fulls that are found to be broken, where there is another member to lead.
func (s *session) handOn(ctx context.Context) {
	if s.fulling || s.replacement(time.Now()) != HandOn {
		return
	}
	s.replacing.handed = true
	s.log.WarnContext(ctx, "leadership is to move: fulls of this member were found to be broken", "full", s.newest.Key, "rule", "hand-on")
	if s.HandOn != nil {
		s.HandOn(ctx)
	}
}
