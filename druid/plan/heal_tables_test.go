package plan

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestRestartsCostNoQuorumAndCureOnlyWhatTheyCan(t *testing.T) {
	checkTable(t, restartRows, "restart", "A Pod whose etcd is not ready: druid/plan.restartRows", func(f restartFacts, d rules.Decision[verdict]) string {
		v := d.Verdict
		acts := v&(remove|mark) != 0
		switch {
		case acts && (f.stuck == rules.No || f.waits == rules.Yes || f.pod&(PodLive|PodUnstarted) == 0):
			return "restarts what a restart does not cure"
		case acts && f.spare == rules.No:
			return "restarts a Pod while the others are no quorum"
		case acts && f.turn == rules.No:
			return "touches two members at once"
		case acts && f.node != NodeReady:
			return "deletes a Pod because its node is not known to be well"
		case v == remove && f.marked == rules.No:
			return "deletes a Pod that was not announced"
		}
		return ""
	})
}

func TestNothingIsDeletedBecauseANodeIsAway(t *testing.T) {
	checkTable(t, nodeRows, "node", "A member of a node that does not answer: druid/plan.nodeRows", func(f nodeFacts, d rules.Decision[nodeVerdict]) string {
		v := d.Verdict
		acts := v&(nodeMove|nodeAnnounce|nodeGiveUp) != 0
		switch {
		case acts && f.node&(NodeOutOfService|NodeGone) == 0:
			return "deletes something although no one declared the node lost"
		case acts && f.volume == VolumeUnknown:
			return "acts on what is not known"
		case v&(nodeAnnounce|nodeGiveUp) != 0 && (f.volume != VolumeLocal || f.spare == rules.No || f.turn == rules.No):
			return "gives up data that may be needed, or of two members at once"
		case v == nodeGiveUp && f.marked == rules.No:
			return "deletes a claim that was not announced"
		case v == nodeMove && f.pod&(PodLive|PodUnstarted) == 0:
			return "deletes a Pod that is not there or goes already"
		}
		return ""
	})
}

func TestOrphansAreNeverDeletedForWantOfSomething(t *testing.T) {
	checkTableAbout(t, orphanRows, "orphan", "What bears a member's name and lost its counterpart: druid/plan.orphanRows",
		"Keep: no one acts, or who is named. Wait: no one acts yet. Report: a person acts. Mark: the leader's agent acts.", func(f orphanFacts, d rules.Decision[orphanVerdict]) string {
			v := d.Verdict
			switch {
			case v&(orphanReport|orphanMark) != 0 && (f.usable == rules.No || f.lingers == rules.No || f.retired == rules.Yes):
				return "speaks of what is not known, or passes by itself"
			case v == orphanMark && (f.listed == rules.No || f.unstarted == rules.No):
				return "gives up a learner that is not the name's"
			case v == orphanReport && (f.listed == rules.Yes || f.objects == rules.No):
				return "calls a member superfluous, or nothing"
			}
			return ""
		})
}

func TestSlotIsTakenFromNoOneWhoMayUseIt(t *testing.T) {
	checkTable(t, slotRows, "slot", "The slot of the member that replaces itself: druid/plan.slotRows", func(f slotFacts, d rules.Decision[slotVerdict]) string {
		if d.Verdict == slotRelease && (f.taken == rules.No || f.holder == rules.Yes || f.comes == rules.Yes) {
			return "takes the slot from a Pod that may be in the middle of it"
		}
		return ""
	})
}

func TestPatienceDoublesUpToAnHour(t *testing.T) {
	for restarts, want := range []int{5, 10, 20, 40, 60, 60} {
		if got := Patience(5*time.Minute, restarts); got != time.Duration(want)*time.Minute {
			t.Errorf("after %d restarts it is %s, want %d minutes", restarts, got, want)
		}
	}
	if got := Patience(2*time.Hour, 1<<40); got != 2*time.Hour {
		t.Errorf("a longer grace period is cut to %s", got)
	}
}
