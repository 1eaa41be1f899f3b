package plan

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

var (
	nodeWords        = []string{"unknown", "ready", "away", "out of service", "vanished", "gone"}
	volumeWords      = []string{"unknown", "local", "movable"}
	nodeVerdictWords = map[nodeVerdict]string{
		nodeKeep: "Keep", nodeTell: "Tell", nodeHeld: "Held", nodeWait: "Wait", nodeMove: "DeletePod", nodeAnnounce: "Mark", nodeGiveUp: "DeleteClaim",
	}
	orphanVerdictWords = map[orphanVerdict]string{orphanKeep: "Keep", orphanWait: "Wait", orphanTell: "Tell", orphanMark: "Mark"}
	orphanActors       = map[orphanVerdict]string{orphanKeep: "nobody, or who is named", orphanWait: "nobody yet", orphanTell: "a person", orphanMark: "the leader's agent"}
	slotVerdictWords   = map[slotVerdict]string{slotKeep: "Keep", slotRelease: "Release"}
)

func TestRestartsCostNoQuorumAndCureOnlyWhatTheyCan(t *testing.T) {
	count := map[string]int{}
	for _, stuck := range bits(anyAnswer) {
		for _, pod := range bits(anyPod) {
			for _, waits := range bits(anyAnswer) {
				for _, node := range bits(anyNode) {
					for _, spare := range bits(anyAnswer) {
						for _, turn := range bits(anyAnswer) {
							for _, marked := range bits(anyAnswer) {
								f := restartFacts{stuck, pod, waits, node, spare, turn, marked}
								checkRestart(t, f, count)
							}
						}
					}
				}
			}
		}
	}
	var rows [][]string
	var names []string
	for _, r := range restartRows {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, answer(r.stuck), cell(r.pod, anyPod, podWords), answer(r.waits), cell(r.node, anyNode, nodeWords), answer(r.spare),
			answer(r.turn), answer(r.marked), bold(verdictWords[r.verdict]), r.why,
		})
	}
	fired(t, count, names...)
	section(t, "restart", "A Pod whose etcd is not ready: druid/plan.restartRows", []string{
		"not ready for too long", "Pod", "waits for what a restart does not bring", "node", "the others are a quorum", "its turn",
		"the Lease announces it", "verdict", "why",
	}, rows, count)
}

func checkRestart(t *testing.T, f restartFacts, count map[string]int) {
	t.Helper()
	v, rule := judgeRestart(f)
	count[rule]++
	acts := v&(remove|mark) != 0
	switch {
	case acts && (f.stuck == rules.No || f.waits == rules.Yes || f.pod&(PodLive|PodUnstarted) == 0):
		t.Errorf("%+v: %s restarts what a restart does not cure", f, rule)
	case acts && f.spare == rules.No:
		t.Errorf("%+v: %s restarts a Pod while the others are no quorum", f, rule)
	case acts && f.turn == rules.No:
		t.Errorf("%+v: %s touches two members at once", f, rule)
	case acts && f.node != NodeReady:
		t.Errorf("%+v: %s deletes a Pod because its node is not known to be well", f, rule)
	case v == remove && f.marked == rules.No:
		t.Errorf("%+v: %s deletes a Pod that was not announced", f, rule)
	}
}

func TestNothingIsDeletedBecauseANodeIsAway(t *testing.T) {
	count := map[string]int{}
	for _, node := range bits(anyNode) {
		for _, volume := range bits(anyVolume) {
			for _, pod := range bits(anyPod) {
				for _, spare := range bits(anyAnswer) {
					for _, turn := range bits(anyAnswer) {
						for _, marked := range bits(anyAnswer) {
							f := nodeFacts{node, volume, pod, spare, turn, marked}
							checkNode(t, f, count)
						}
					}
				}
			}
		}
	}
	var rows [][]string
	var names []string
	for _, r := range nodeRows {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.node, anyNode, nodeWords), cell(r.volume, anyVolume, volumeWords), cell(r.pod, anyPod, podWords),
			answer(r.spare), answer(r.turn), answer(r.marked), bold(nodeVerdictWords[r.verdict]), r.why,
		})
	}
	fired(t, count, names...)
	section(t, "node", "A member of a node that does not answer: druid/plan.nodeRows", []string{
		"node", "volume", "Pod", "the others are a quorum", "its turn", "the Lease announces it", "verdict", "why",
	}, rows, count)
}

func checkNode(t *testing.T, f nodeFacts, count map[string]int) {
	t.Helper()
	v, rule := judgeNode(f)
	count[rule]++
	acts := v&(nodeMove|nodeAnnounce|nodeGiveUp) != 0
	switch {
	case acts && f.node&(NodeOutOfService|NodeGone) == 0:
		t.Errorf("%+v: %s deletes something although nobody declared the node lost", f, rule)
	case acts && f.volume == VolumeUnknown:
		t.Errorf("%+v: %s acts on what is not known", f, rule)
	case v&(nodeAnnounce|nodeGiveUp) != 0 && (f.volume != VolumeLocal || f.spare == rules.No || f.turn == rules.No):
		t.Errorf("%+v: %s gives up data that may be needed, or of two members at once", f, rule)
	case v == nodeGiveUp && f.marked == rules.No:
		t.Errorf("%+v: %s deletes a claim that was not announced", f, rule)
	case v == nodeMove && f.pod&(PodLive|PodUnstarted) == 0:
		t.Errorf("%+v: %s deletes a Pod that is not there or goes already", f, rule)
	}
}

func TestOrphansAreNeverDeletedForWantOfSomething(t *testing.T) {
	count := map[string]int{}
	for _, usable := range bits(anyAnswer) {
		for _, listed := range bits(anyAnswer) {
			for _, retired := range bits(anyAnswer) {
				for _, objects := range bits(anyAnswer) {
					for _, unstarted := range bits(anyAnswer) {
						for _, lingers := range bits(anyAnswer) {
							for _, marked := range bits(anyAnswer) {
								f := orphanFacts{usable, listed, retired, objects, unstarted, lingers, marked}
								checkOrphan(t, f, count)
							}
						}
					}
				}
			}
		}
	}
	var rows [][]string
	var names []string
	for _, r := range orphanRows {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, answer(r.usable), answer(r.listed), answer(r.retired), answer(r.objects), answer(r.unstarted), answer(r.lingers),
			answer(r.marked), bold(orphanVerdictWords[r.verdict]), orphanActors[r.verdict], r.why,
		})
	}
	fired(t, count, names...)
	section(t, "orphan", "What bears a member's name and lost its counterpart: druid/plan.orphanRows", []string{
		"record can be read", "listed", "removal acknowledged", "objects bear the name", "its learner never started",
		"unlisted, or without running Pod, for long", "the Lease says so", "verdict", "who acts", "why",
	}, rows, count)
}

func checkOrphan(t *testing.T, f orphanFacts, count map[string]int) {
	t.Helper()
	v, rule := judgeOrphan(f)
	count[rule]++
	switch {
	case v&(orphanTell|orphanMark) != 0 && (f.usable == rules.No || f.lingers == rules.No || f.retired == rules.Yes):
		t.Errorf("%+v: %s speaks of what is not known, or passes by itself", f, rule)
	case v == orphanMark && (f.listed == rules.No || f.unstarted == rules.No):
		t.Errorf("%+v: %s gives up a learner that is not the name's", f, rule)
	case v == orphanTell && (f.listed == rules.Yes || f.objects == rules.No):
		t.Errorf("%+v: %s calls a member superfluous, or nothing", f, rule)
	}
}

func TestSlotIsTakenFromNobodyWhoMayUseIt(t *testing.T) {
	count := map[string]int{}
	var rows [][]string
	var names []string
	for _, taken := range bits(anyAnswer) {
		for _, holder := range bits(anyAnswer) {
			for _, comes := range bits(anyAnswer) {
				f := slotFacts{taken, holder, comes}
				v, rule := judgeSlot(f)
				count[rule]++
				if v == slotRelease && (taken == rules.No || holder == rules.Yes || comes == rules.Yes) {
					t.Errorf("%+v: %s takes the slot from a Pod that may be in the middle of it", f, rule)
				}
			}
		}
	}
	for _, r := range slotRows {
		names = append(names, r.name)
		rows = append(rows, []string{r.name, answer(r.taken), answer(r.holder), answer(r.comes), bold(slotVerdictWords[r.verdict]), r.why})
	}
	fired(t, count, names...)
	section(t, "slot", "The slot of the member that replaces itself: druid/plan.slotRows", []string{
		"taken", "the Pod that took it exists", "a Pod of its name runs or may come up", "verdict", "why",
	}, rows, count)
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
