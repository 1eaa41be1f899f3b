package ledger

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What the packages of a module do when the real `go test -json` runs them. A package under "again" runs a second time, as a
// repetition would.
var packagesOf = map[string]string{
	"well":    `func TestOne(t *testing.T) {}`,
	"failing": `func TestOne(t *testing.T) { t.Run("part", func(t *testing.T) { t.Error("this is wrong") }) }; func TestTwo(t *testing.T) {}`,
	"again":   `func TestOne(t *testing.T) { if os.Getenv("AGAIN") == "" { t.Error("this was wrong") } }`,
	"quoting": `func TestOne(t *testing.T) { t.Error("a log:\npanic: of another process\n\ngoroutine 1 [running]:") }`,
	"panics":  `func TestOne(t *testing.T) { panic("out of order") }`,
	"hangs":   `func TestOne(t *testing.T) { select {} }`,
	"ends":    `func TestMain(m *testing.M) { m.Run(); os.Exit(3) }`,
	"broken":  `func TestOne(t *testing.T) { it is not Go }`,
}

func TestPackagesAreReadAsGoTestPrintsThem(t *testing.T) {
	source := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(source, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+strings.TrimSuffix(module, "/")+"\n\ngo 1.26\n")
	for name, body := range packagesOf {
		write(name+"/x_test.go", "package x\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\n"+body+"\n")
	}
	run := Run{Dir: t.TempDir()}
	results := goTest(t, source, "", "./...")
	results = append(results, goTest(t, source, "AGAIN=1", "-run=^TestOne$", "./again")...)
	// The race detector needs a compiler of C, so its words are quoted.
	results = append(results, `{"Action":"start","Package":"github.com/etcd-druid/druid/races"}
{"Action":"output","Package":"github.com/etcd-druid/druid/races","Test":"TestOne","Output":"WARNING: DATA RACE\n"}
{"Action":"fail","Package":"github.com/etcd-druid/druid/races","Test":"TestOne","Elapsed":0.1}
{"Action":"fail","Package":"github.com/etcd-druid/druid/races","Elapsed":0.1}
{"Action":"out`...)
	if err := os.WriteFile(run.Packages(), results, 0o600); err != nil {
		t.Fatal(err)
	}
	entries, fatal, err := run.ReadPackages()
	if err != nil {
		t.Fatal(err)
	}
	entry := func(test string, outcomes ...Outcome) Entry {
		return Entry{Kind: KindTest, Test: test, Outcomes: outcomes}
	}
	want := []Entry{
		entry("again.TestOne", Failed, Passed), entry("failing.TestOne", Failed),
		entry("panics.TestOne", Failed), entry("quoting.TestOne", Failed), entry("races.TestOne", Failed),
	}
	if diff := cmp.Diff(want, entries, cmpopts.IgnoreFields(Entry{}, "At", "Seconds", "Dump")); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	wantFatal := []Fatal{{Build, "broken"}, {Outside, "ends"}, {Timeout, "hangs"}, {Panic, "panics"}, {DataRace, "races"}}
	if diff := cmp.Diff(wantFatal, fatal); diff != "" {
		t.Errorf("fatal failures (-want +got):\n%s", diff)
	}
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Test == "again.TestOne" })
	if text, err := os.ReadFile(entries[max(i, 0)].Dump); err != nil || !strings.Contains(string(text), "this was wrong") {
		t.Errorf("the first failure's output is %q, %v", text, err)
	}
}

// goTest is what `go test -json` prints, whatever it exits with.
func goTest(t *testing.T, dir, variable string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-vet=off", "-count=1", "-timeout=5s"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GOWORK=off", variable)
	out, err := cmd.Output()
	if len(out) == 0 {
		t.Fatalf("go test %v printed nothing: %v", args, err)
	}
	return out
}
