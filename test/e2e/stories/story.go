package stories

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Tier says in which runs a story is performed.
type Tier string

// The tiers.
const (
	Core   Tier = "core"    // in each run
	InTurn Tier = "in turn" // when the change touches it, or when it was not performed for longest
	Soak   Tier = "soak"    // by `make soak` and `make test-all`
)

// Sharing says whether other stories may be performed at the same time.
type Sharing string

// The kinds of sharing.
const (
	Alone     Sharing = "alone"     // it touches what all share: druid, a node, the API server
	Alongside Sharing = "alongside" // it touches only its own cluster
)

// Story is a row of the table.
type Story struct {
	Name string
	Tier Tier
	With Sharing
	// Etcds is how many it runs at once at the most, and two more for harness.Load.
	Etcds int
	// Seconds that it takes on two cores, where the ledger does not know better.
	Seconds int
	// Of are the packages that it shows, as folders; one that ends in /... includes those below.
	Of string
}

// Key is the story's name in the ledger.
func (s Story) Key() string { return "test/e2e." + s.Name }

// Shows says whether the story is of a package, a folder of the module.
func (s Story) Shows(folder string) bool {
	return slices.ContainsFunc(strings.Fields(s.Of), func(of string) bool {
		above, below := strings.CutSuffix(of, "/...")
		return folder == above || below && strings.HasPrefix(folder, above+"/")
	})
}

// Find the row of a test.
func Find(name string) (Story, bool) {
	i := slices.IndexFunc(Table, func(s Story) bool { return s.Name == name })
	if i < 0 {
		return Story{}, false
	}
	return Table[i], true
}

// Selection is what the flag -stories says.
type Selection string

// The selections.
const (
	All       Selection = "all"       // core, in turn, and soak once
	OnlyCore  Selection = "core"      //
	OnlyAlone Selection = "alone"     // those that run alone, as the other half runs on a rig next to this one
	OnlyOther Selection = "alongside" // the other half
	ByBudget  Selection = "budget"    // core, and the others as Choose says
	Soaking   Selection = "soak"      // again and again, with other seeds
)

// Of are the stories of a selection that does not depend on the ledger.
func (s Selection) Of(table []Story) ([]Story, error) {
	is, ok := map[Selection]func(Story) bool{
		All:       func(Story) bool { return true },
		OnlyCore:  func(row Story) bool { return row.Tier == Core },
		OnlyAlone: func(row Story) bool { return row.With == Alone },
		OnlyOther: func(row Story) bool { return row.With == Alongside },
	}[s]
	if !ok {
		return nil, fmt.Errorf("there are no stories %q: say %q, %q, %q, %q, %q or %q", s, All, OnlyCore, OnlyAlone, OnlyOther, ByBudget, Soaking)
	}
	return slices.DeleteFunc(slices.Clone(table), func(row Story) bool { return !is(row) }), nil
}

// Pattern is what -test.run has to be for these stories.
func Pattern(chosen []Story) string {
	names := make([]string, 0, len(chosen))
	for _, s := range chosen {
		names = append(names, regexp.QuoteMeta(s.Name))
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// Keys of the stories in the ledger.
func Keys(of []Story) []string {
	keys := make([]string, 0, len(of))
	for _, s := range of {
		keys = append(keys, s.Key())
	}
	return keys
}
