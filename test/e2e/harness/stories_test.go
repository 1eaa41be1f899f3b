package harness

import (
	"slices"
	"testing"
)

// A story that is told to be alone and is not would be told twice; one that is alone and not told so would meet the others.
func TestStoriesAloneAreThoseThatAreNotParallel(t *testing.T) {
	names, err := storiesAlone("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"TestClusterOutlivesTheControlPlaneAndANode":   true, // it stops the API server
		"TestTwoNodesAreDrainedAtOnceWhileMembersJoin": true, // it stands behind one that is parallel, in the same file
		"TestFiveMembersForm":                          false,
		"TestWhatCannotBeIsRefusedWithASentence":       false, // its parts are parallel too
		"TestMain":                                     false,
	} {
		if got := slices.Contains(names, name); got != want {
			t.Errorf("%s is among those that run alone: %t, want %t", name, got, want)
		}
	}
	if _, err := storiesAlone(t.TempDir()); err == nil {
		t.Error("a folder without stories is no error: all stories would run on both rigs")
	}
}
