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
	Broken rules.YesNo
	// Repeated: this leader took a full for that already.
	Repeated rules.YesNo
	// Few: no more than fewBroken fulls were taken since the last one that was proven, and this leader has not handed on yet.
	Few rules.YesNo
	// Rested: the pause since this leader's last such full is over.
	Rested rules.YesNo
}

type replaceRule struct {
	name                          string
	broken, repeated, few, rested rules.YesNo
	replacement                   Replacement
	why                           string
}

// replaceRules say what follows a full that was found to be broken. First match wins.
var replaceRules = []replaceRule{
	{"sound", rules.No, anyAnswer, anyAnswer, anyAnswer, NoReplacement, "the newest full is not known to be broken"},
	{"replace", rules.Yes, rules.No, anyAnswer, anyAnswer, ReplaceNow, "what is saved leads to no state that the cluster had"},
	{"hand-on", rules.Yes, rules.Yes, rules.Yes, anyAnswer, HandOn, "two in a row may come from a damaged page of this member's database; another member's may be whole"},
	{"replace-later", rules.Yes, rules.Yes, rules.No, rules.No, ReplaceLater, "fulls one after the other would fill the store and cure nothing"},
	{"replace-again", rules.Yes, rules.Yes, rules.No, rules.Yes, ReplaceNow, "what made the fulls before it broken may have passed"},
}

// DecideReplacement says what to do about the newest full, and by which rule.
func DecideReplacement(f ReplaceFacts) (r Replacement, rule string) {
	for _, r := range replaceRules {
		if r.broken&f.Broken != 0 && r.repeated&f.Repeated != 0 && r.few&f.Few != 0 && r.rested&f.Rested != 0 {
			return r.replacement, r.name
		}
	}
	return NoReplacement, "uncovered"
}

// replacing is what a session remembers of the fulls that were found to be broken.
type replacing struct {
	// taken are the fulls that this session took for that.
	taken attempts
	// unproven are the fulls since the last one that was proven; handed says that leadership was to move for them.
	unproven int
	handed   bool
}

// unprovenIn counts the fulls of a listing that are newer than the last one that was proven.
func unprovenIn(h chain.History, proven string) (n int) {
	for i := len(h.Fulls) - 1; i >= 0 && h.Fulls[i].Key != proven; i-- {
		n++
	}
	return n
}

// replacement of the newest full. A full that is proven ends what was remembered.
func (s *session) replacement(now time.Time) Replacement {
	broken := s.tell.disproved(s.newest.Key)
	if !broken && s.newest.Key != "" && s.tell.proven() == s.newest.Key {
		s.replacing.taken.succeeded()
		s.replacing.unproven, s.replacing.handed = 0, false
	}
	r, _ := DecideReplacement(ReplaceFacts{
		Broken: rules.YesNoOf(broken), Repeated: rules.YesNoOf(s.replacing.taken.failures > 0),
		Few:    rules.YesNoOf(s.replacing.unproven <= fewBroken && !s.replacing.handed),
		Rested: rules.YesNoOf(!s.replacing.taken.resting(now)),
	})
	return r
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
