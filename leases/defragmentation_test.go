package leases

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestADefragmentationReadsBack(t *testing.T) {
	for name, want := range map[string]Defragmentation{
		"done": {At: time.Date(2026, 11, 21, 3, 0, 5, 0, time.UTC), Result: "defragmented", Took: 7412 * time.Millisecond, Before: 1 << 31, After: 1 << 29},
		"left": {At: time.Date(2026, 11, 21, 3, 0, 5, 0, time.UTC), Result: "left", Took: time.Second, Before: 1 << 31},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := want.format()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ParseDefragmentation(text), want); diff != "" {
				t.Errorf("%s (-got +want)\n%s", text, diff)
			}
		})
	}
	const frozen = `{"at":"2026-11-21T03:00:05Z","result":"defragmented","took":"7.412s","before":2147483648,"after":536870912}`
	if got, _ := ParseDefragmentation(frozen).format(); got != frozen {
		t.Errorf("written as %s, want %s", got, frozen)
	}
	for _, text := range []string{"", "yes", `{"took":"often"}`} {
		if got := ParseDefragmentation(text); got != (Defragmentation{}) {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
}
