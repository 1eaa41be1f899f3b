package stories

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// coreSpan is what the core may take: a run of 28 minutes has 11 for the packages, and 3 for the quickstart and what comes before.
const coreSpan = 13 * time.Minute

// promises are the stories of the three promises: an acknowledged write is kept, a cluster is formed once, and its quorum is not
// given away.
var promises = []string{
	"TestMemberHealsWhenItsDataIsLost", "TestClusterIsNeverFormedTwice", "TestRemovalKeepsQuorum",
}

func TestEachStoryHasARowAndEachRowAStory(t *testing.T) {
	files, err := Tests("..")
	if err != nil {
		t.Fatal(err)
	}
	var tests, rows []string
	for file, functions := range files {
		for _, f := range functions {
			tests = append(tests, f.Name.Name)
			if !beginsItself(f) {
				t.Errorf("%s in %s does not say stories.Begin(t) first, so it knows nothing of its row", f.Name.Name, file)
			}
		}
	}
	for _, s := range Table {
		rows = append(rows, s.Name)
		if s.Etcds < 1 || s.Seconds < 1 || !slices.Contains([]Tier{Core, InTurn, Soak}, s.Tier) || !slices.Contains([]Sharing{Alone, Alongside}, s.With) {
			t.Errorf("the row %+v is not whole", s)
		}
	}
	slices.Sort(tests)
	slices.Sort(rows)
	if diff := cmp.Diff(tests, rows); diff != "" {
		t.Errorf("stories have other rows in the table (-tests +rows):\n%s", diff)
	}
}

// beginsItself says whether a function's first statement is stories.Begin(t).
func beginsItself(f *ast.FuncDecl) bool {
	if len(f.Body.List) == 0 {
		return false
	}
	statement, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := method.X.(*ast.Ident)
	return ok && of.Name == "stories" && method.Sel.Name == "Begin"
}

func TestEachLinkedPackageIsOfACoreStory(t *testing.T) {
	imports, err := Imports("../../..")
	if err != nil {
		t.Fatal(err)
	}
	linked := Linked(imports)
	for _, known := range []string{"cmd/druid", "cmd/agent", "cmd/launch", "agent/launch/supervise", "backup/store/s3", "api/v1alpha1"} {
		if !slices.Contains(linked, known) {
			t.Errorf("%s is not among the %d packages that are found to be linked", known, len(linked))
		}
	}
	for _, folder := range linked {
		if !slices.ContainsFunc(Table, func(s Story) bool { return s.Tier == Core && s.Shows(folder) }) {
			t.Errorf("package %s is linked into a program and no core story is of it", folder)
		}
	}
	all := linked
	for _, program := range outside {
		all = reach(all, program, imports)
	}
	for _, s := range Table {
		for of := range strings.FieldsSeq(s.Of) {
			if !slices.ContainsFunc(all, func(folder string) bool { return Story{Of: of}.Shows(folder) }) {
				t.Errorf("%s is of %s, which no program links", s.Name, of)
			}
		}
	}
}

// TestCoreFitsBudgetWithPromises: the core fits into its span and has the promises.
func TestCoreFitsBudgetWithPromises(t *testing.T) {
	core, err := OnlyCore.Of(Table)
	if err != nil {
		t.Fatal(err)
	}
	span := Span(core, Facts{})
	t.Logf("%d core stories take %s", len(core), span)
	if span > coreSpan {
		t.Errorf("the core takes %s, want at most %s: move a story to those that are in turn", span, coreSpan)
	}
	for _, name := range promises {
		if s, ok := Find(name); !ok || s.Tier != Core {
			t.Errorf("%s is %+v, want it in the core: it shows a promise", name, s)
		}
	}
}

func TestASelectionIsAPartOfTheTable(t *testing.T) {
	total := 0
	for _, s := range []Selection{OnlyAlone, OnlyOther} {
		part, err := s.Of(Table)
		if err != nil || len(part) == 0 {
			t.Errorf("%q has %d stories, %v", s, len(part), err)
		}
		total += len(part)
	}
	if total != len(Table) {
		t.Errorf("those that run alone and those that run next to others are %d, want all %d", total, len(Table))
	}
	if all, err := All.Of(Table); err != nil || len(all) != len(Table) {
		t.Errorf("all are %d, %v", len(all), err)
	}
	if part, err := Selection("some").Of(Table); err == nil {
		t.Errorf("an unknown selection has %d stories", len(part))
	}
	if got := Pattern([]Story{{Name: "TestA"}, {Name: "TestB"}}); got != "^(TestA|TestB)$" {
		t.Errorf("the pattern is %q", got)
	}
}
