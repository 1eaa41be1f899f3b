package membership

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

// brokenNospace names the invariant that a decision violates, or returns the empty string.
func brokenNospace(f NospaceFacts, d NospaceDecision) string {
	acts := d.Verdict != NospaceKeep && d.Verdict != NospaceWait
	may := f.Alarms == NoSpaceRaised && f.Enabled == rules.Yes && f.Authoritative == rules.Yes && f.Leads == rules.Yes
	loose := f.Fill == FollowerLoose || f.Fill == LeaderLoose
	stalls := d.Verdict == NospaceDefrag || d.Verdict == NospaceMove
	healthy := f.Stable == rules.Yes && f.Healthy == rules.Yes && f.Room == rules.Yes
	switch {
	case acts && !may:
		return "acts without an alarm NOSPACE and no other one, unasked, or without leadership"
	case d.Verdict == NospaceDisarm && f.Fill != AllBelow:
		return "disarms while a file is above the margin, or is not known"
	case d.Verdict == NospaceCompact && (f.Fill != OverThreshold || f.History != HistoryThere):
		return "compacts although a defragmentation would do, or what is not old and saved"
	case stalls && (!loose || !healthy):
		return "stalls a member without need, next to another change, on an ailing cluster, or without room"
	case d.Verdict == NospaceMove && (f.Fill != LeaderLoose || f.Alone == rules.Yes || f.Moved != rules.No):
		return "moves leadership although a follower is due, or there is no other member, or again"
	case d.Verdict == NospaceDefrag && f.Fill == LeaderLoose && f.Alone != rules.Yes && f.Moved == rules.No:
		return "stalls the leader although another one could lead"
	case d.Verdict == NospaceWait && d.Why == "", f.Alarms != NoAlarm && d.Verdict == NospaceKeep && d.Why == "":
		return "does not say why an alarm stays"
	// The table must act whenever it is allowed to.
	case may && !acts && (f.Fill == AllBelow || f.Fill == OverThreshold && f.History == HistoryThere || loose && healthy):
		return "what may be done is not"
	}
	return ""
}

func TestNospaceRulesAreSafeForAllFacts(t *testing.T) {
	checkTable(t, nospaceRules, "full-database", "A full database: membership.nospaceRules",
		"Asked by the leader's agent once a minute, and before membership.defrags. At most one thing is done each time.", brokenNospace)
}

func TestOnlyNoSpaceAloneIsRepaired(t *testing.T) {
	space, corrupt, other := Alarm{1, AlarmNoSpace}, Alarm{2, AlarmCorrupt}, Alarm{3, "HEAT"}
	for name, tc := range map[string]struct {
		alarms []Alarm
		want   AlarmsRaised
	}{
		"none":                    {nil, NoAlarm},
		"no space":                {[]Alarm{space, space}, NoSpaceRaised},
		"corrupt":                 {[]Alarm{corrupt}, CorruptRaised},
		"corrupt behind the rest": {[]Alarm{space, other, corrupt}, CorruptRaised},
		"an unknown one":          {[]Alarm{other}, AlarmsUnknown},
		"an unknown one first":    {[]Alarm{other, space}, AlarmsUnknown},
		"an unknown one last":     {[]Alarm{space, other}, AlarmsUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := AlarmsOf(tc.alarms); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTheFullestMemberDecides(t *testing.T) {
	view := View{Members: []Member{{ID: 1, Name: "c"}, {ID: 2, Name: "b"}, {ID: 3, Name: "a"}, {ID: 9, Name: "l", Learner: true}}}
	of := func(size, inUse int64) Filled { return Filled{Space{size, inUse}, 1000} }
	small, loose, overThreshold, spent := of(899, 899), of(900, 899), of(1000, 900), of(950, 1)
	due := func(_ Member, s Space) bool { return s.Size != spent.Size }
	for name, tc := range map[string]struct {
		leader  uint64
		c, b, a Filled
		learner Filled
		who     string
		want    Fill
	}{
		"all are below":                         {1, small, small, small, small, "", AllBelow},
		"no quota at all":                       {1, Filled{Space{9000, 9000}, -1}, small, small, small, "", AllBelow},
		"the first follower":                    {1, loose, loose, loose, small, "a", FollowerLoose},
		"a follower behind the leader":          {3, loose, small, loose, small, "c", FollowerLoose},
		"the leader alone":                      {3, small, small, loose, small, "a", LeaderLoose},
		"a learner counts":                      {3, small, small, small, loose, "l", FollowerLoose},
		"one that is to rest":                   {3, loose, spent, loose, small, "b", Resting},
		"crowded before all":                    {3, loose, spent, overThreshold, small, "a", OverThreshold},
		"one does not answer":                   {3, small, Filled{}, small, small, "", FillUnknown},
		"one does not report its quota":         {3, small, Filled{Space{1, 1}, 0}, small, small, "", FillUnknown},
		"a crowded one and one does not answer": {3, overThreshold, small, small, Filled{}, "", FillUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			filled := map[uint64]Filled{1: tc.c, 2: tc.b, 3: tc.a, 9: tc.learner}
			if m, got := FillOf(view, tc.leader, filled, due); m.Name != tc.who || got != tc.want {
				t.Errorf("got %q, %s; want %q, %s", m.Name, got, tc.who, tc.want)
			}
			delete(filled, 2)
			if _, got := FillOf(view, tc.leader, filled, due); got != FillUnknown {
				t.Errorf("without one of them: %s", got)
			}
		})
	}
}

func TestAFileThatDoesNotShrinkIsLeftAlone(t *testing.T) {
	after := Space{Size: 1000, InUse: 400}
	for name, tc := range map[string]struct {
		last DefragAttempt
		now  Space
		ago  time.Duration
		want bool
	}{
		"as it was left":                 {DefragAttempt{After: after}, after, 30 * 24 * time.Hour, false},
		"it grew, a moment ago":          {DefragAttempt{After: after}, Space{2000, 400}, time.Minute, false},
		"it grew":                        {DefragAttempt{After: after}, Space{1101, 400}, 2 * time.Minute, true},
		"less is in use":                 {DefragAttempt{After: after}, Space{1000, 300}, 2 * time.Minute, true},
		"it failed, a moment ago":        {DefragAttempt{Failures: 1, After: after}, after, time.Minute, false},
		"it failed":                      {DefragAttempt{Failures: 1, After: after}, after, 2 * time.Minute, true},
		"it failed three times":          {DefragAttempt{Failures: 3, After: after}, after, 7 * time.Minute, false},
		"it failed a hundred times":      {DefragAttempt{Failures: 100, After: after}, after, time.Hour, true},
		"it was left, and nothing known": {DefragAttempt{Helped: true}, after, 2 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.last.AgainFull(tc.now, tc.ago, NospaceAgain); got != tc.want {
				t.Errorf("got %t", got)
			}
			if spent := tc.last.Spent(tc.now); spent && tc.last.AgainFull(tc.now, 2*time.Hour, NospaceAgain) && tc.last.Failures == 0 {
				t.Error("spent, and to be defragmented again")
			}
		})
	}
}

func TestWhatADefragmentationLeftHasNoSlack(t *testing.T) {
	after := Space{Size: 1000, InUse: 900}
	for name, tc := range map[string]struct {
		last DefragAttempt
		now  Space
		want bool
	}{
		"as it was left":   {DefragAttempt{After: after}, after, true},
		"hardly a change":  {DefragAttempt{After: after}, Space{1050, 850}, true},
		"less is in use":   {DefragAttempt{After: after}, Space{1000, 700}, false},
		"it failed":        {DefragAttempt{Failures: 1, After: after}, after, false},
		"nothing is known": {DefragAttempt{}, after, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.last.Spent(tc.now); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestAMemberWithoutSpaceServes(t *testing.T) {
	for name, tc := range map[string]struct {
		s               Status
		serves, alarmed bool
	}{
		"well":               {Status{Leader: 1}, true, false},
		"no leader":          {Status{}, false, false},
		"no space":           {Status{Leader: 1, Errors: []string{"memberID:1 alarm:NOSPACE "}}, true, true},
		"corrupt":            {Status{Leader: 1, Errors: []string{"memberID:1  alarm:CORRUPT"}}, false, true},
		"both":               {Status{Leader: 1, Errors: []string{"memberID:1 alarm:NOSPACE", "memberID:2 alarm:CORRUPT"}}, false, true},
		"words of a new day": {Status{Leader: 1, Errors: []string{"etcdserver: tired"}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.s.Serves() != tc.serves || tc.s.Alarmed() != tc.alarmed {
				t.Errorf("serves %t, alarmed %t", tc.s.Serves(), tc.s.Alarmed())
			}
		})
	}
}
