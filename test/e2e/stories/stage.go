package stories

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/ledger"
)

// stage is where the stories of this process are performed.
var stage = struct {
	slots *Slots
	mu    sync.Mutex
	on    map[string]*performance
	// failed are the stories that failed at least once, in their order.
	failed []Story
}{slots: NewSlots(Capacity), on: map[string]*performance{}}

// performance of a story.
type performance struct {
	story    Story
	begun    time.Time
	pressure time.Duration // the time in which a process waited for a CPU until it began
	dump     string
}

// Begin makes a test the story that its row describes: it runs alone or next to others, waits for its slots, and leaves its outcome
// in the run's directory.
func Begin(t *testing.T) {
	t.Helper()
	s, ok := Find(t.Name())
	if !ok {
		t.Fatalf("%s has no row in the table of test/e2e/stories", t.Name())
	}
	if s.With == Alongside {
		stage.slots.Announce()
		t.Parallel()
		stage.slots.Enter(s.Etcds, time.Duration(s.Seconds)*time.Second)
		t.Cleanup(func() { stage.slots.Leave(s.Etcds) })
	}
	p := &performance{story: s, begun: time.Now(), pressure: waited()}
	stage.mu.Lock()
	stage.on[s.Name] = p
	stage.mu.Unlock()
	t.Cleanup(func() { p.end(t) })
}

// end is the first clean-up of the story, so it is the last that runs.
func (p *performance) end(t *testing.T) {
	stage.mu.Lock()
	defer stage.mu.Unlock()
	delete(stage.on, p.story.Name)
	took, share := time.Since(p.begun), p.share()
	t.Logf("the story took %s under a CPU pressure of %.0f %%", took.Round(time.Second), share)
	e := ledger.Entry{
		Kind: ledger.KindStory, Test: p.story.Key(), At: time.Now().UTC(), Outcomes: []ledger.Outcome{ledger.Passed},
		Seconds: took.Round(100 * time.Millisecond).Seconds(), Pressure: []float64{share}, Dump: p.dump,
	}
	if t.Failed() {
		e.Outcomes[0] = ledger.Failed
		stage.failed = append(stage.failed, p.story)
	}
	if run, ok := ledger.Current(); ok {
		if err := ledger.AppendEntry(run.Stories(), e); err != nil {
			t.Errorf("leave the outcome: %v", err)
		}
	}
}

// takeFailed returns the stories that failed since the last call.
func takeFailed() []Story {
	stage.mu.Lock()
	defer stage.mu.Unlock()
	failed := stage.failed
	stage.failed = nil
	return failed
}

// of is the performance that a test, or a part of one, belongs to; nil outside of stories.
func of(t testing.TB) *performance {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	stage.mu.Lock()
	defer stage.mu.Unlock()
	return stage.on[name]
}

// Resting runs what waits without load: a grace, a schedule, a Lease that runs out. Meanwhile others have the story's slots but one.
func Resting(t testing.TB, do func()) {
	t.Helper()
	if p := of(t); p != nil && p.story.With == Alongside {
		defer stage.slots.Rest(p.story.Etcds)()
	}
	do()
}

// Pressure is the share of the story in which a process waited for a CPU, in percent.
func Pressure(t testing.TB) float64 {
	t.Helper()
	if p := of(t); p != nil {
		return p.share()
	}
	return 0
}

func (p *performance) share() float64 {
	return 100 * float64(waited()-p.pressure) / float64(max(time.Since(p.begun), time.Millisecond))
}

// waited is the time in which some process of the machine waited for a CPU, since it was started (PSI). Zero where the kernel does
// not count it.
func waited() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	some, _, _ := strings.Cut(string(text), "\n")
	_, total, _ := strings.Cut(some, "total=")
	var micros int64
	if _, err := fmt.Sscan(total, &micros); err != nil {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}

// KeepDump writes down what is seen of a test that failed, and returns the file. In a run nothing that was kept before is replaced:
// the first failure says most.
func KeepDump(t testing.TB, name, text string) (string, error) {
	t.Helper()
	path, err := keep(name, text)
	if p := of(t); p != nil && err == nil {
		stage.mu.Lock()
		defer stage.mu.Unlock()
		if p.dump == "" {
			p.dump = path
		}
	}
	return path, err
}

func keep(name, text string) (string, error) {
	if run, ok := ledger.Current(); ok {
		return run.KeepDump(name, text)
	}
	path, err := ledger.Path()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(filepath.Dir(path), "failed")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("keep what was seen of %s: %w", name, err)
	}
	path = filepath.Join(folder, name+".txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("keep what was seen of %s: %w", name, err)
	}
	return path, nil
}
