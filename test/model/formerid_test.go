package model

import "testing"

// formerID is the history of a member that forms the group alone, replaces itself after two others joined, and then finds its
// volume as it was in the beginning, while no other member is reached. The actions of each part are followed by a time without
// faults.
var formerID = []string{"B00 +00", "E00 Q00", "w00 w10"}

// atLast are the actions at the end of formerID, in which nothing heals: two crashes, and a volume that goes back.
const atLast = "E00 R00 E10 s00 s00 e00"

// relive performs a history of a cluster that begins with one member.
func relive(t *testing.T, history []string, m *mutation) *world {
	t.Helper()
	w := begin(setup{replicas: 1, formed: true}, m)
	perform := func(text string) {
		actions, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range actions {
			w.do(a)
		}
	}
	for _, part := range history {
		perform(part)
		w.heal()
		w.calm = false
	}
	perform(atLast)
	return w
}

func TestAVolumeOfAFormerRaftIDDoesNotLead(t *testing.T) {
	if w := relive(t, formerID, nil); w.ghost.bad != "" || w.ghost.excused {
		t.Errorf("violation %q, excused %t", w.ghost.bad, w.ghost.excused)
	}
}
