package stories

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	"github.com/etcd-druid/druid/test/ledger"
)

// Program is what TestMain has to perform stories with.
type Program struct {
	Selection Selection
	// Root of the repository.
	Root string
	// Start brings up the rig, and Run runs the tests that the flags of package testing name.
	Start func() (stop func(), err error)
	Run   func() int
	Log   io.Writer
	// Soak is what the selection of that name does.
	Soak Soaks
}

// Soaks says for how long, next to how many busy loops, and from which seed on stories are performed again and again.
type Soaks struct {
	Hours float64
	Load  int
	Seed  uint64
	// Reseed gives the random stories their seed.
	Reseed func(uint64)
}

// atOnce is more than there are stories and parts of them: Slots decide, and each must stand in their queue.
const atOnce = "256"

func (p Program) say(format string, args ...any) {
	fmt.Fprintf(p.Log, "stories: "+format+"\n", args...)
}

// Perform brings up the rig, performs the chosen stories, and repeats what failed if that is a matter of `make test`. It returns the
// exit code. Tests that -test.run names are run as they are.
func (p Program) Perform(ctx context.Context) (int, error) {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		return 0, err
	}
	named := flag.Lookup("test.run").Value.String() != ""
	run, inRun := ledger.Current()
	if p.Selection == "" {
		p.Selection = All
		if inRun {
			p.Selection = ByBudget
		}
	}
	if !named && p.Selection != Soaking {
		if err := p.choose(ctx, run, inRun); err != nil {
			return 0, err
		}
	}
	stop, err := p.Start()
	if err != nil {
		return 0, fmt.Errorf("bring up the rig: %w", err)
	}
	defer stop()
	if p.Selection == Soaking {
		return p.soak(ctx, named)
	}
	code := p.Run()
	if failed := takeFailed(); inRun && len(failed) > 0 {
		return p.repeat(run, failed)
	}
	return code, nil
}

// choose sets -test.run, and writes down in the run's directory what was chosen.
func (p Program) choose(ctx context.Context, run ledger.Run, inRun bool) error {
	var chosen, left []Story
	if p.Selection == ByBudget {
		known, err := gather(ctx, p.Root, p.say)
		if err != nil {
			return err
		}
		facts := Facts{Of: known}
		if facts.Left, err = timeLeft(time.Now()); err != nil {
			return err
		}
		chosen, left = Choose(Table, facts)
		p.say("%d of %d chosen, for %s of %s", len(chosen), len(chosen)+len(left), Span(chosen, facts).Round(time.Second), facts.Left.Round(time.Second))
	} else {
		var err error
		if chosen, err = p.Selection.Of(Table); err != nil {
			return err
		}
	}
	if inRun {
		plan := ledger.Entry{Kind: ledger.KindPlan, Run: run.Name(), At: time.Now().UTC(), Chosen: Keys(chosen), Left: Keys(left)}
		if err := ledger.AppendEntry(run.Stories(), plan); err != nil {
			return err
		}
	}
	return flag.Set("test.run", Pattern(chosen))
}

// repeat performs once more what failed, each by itself on the rig. More than ledger.MostRepeated, or a broken promise of safety, are
// no matter of chance, and nothing is repeated.
func (p Program) repeat(run ledger.Run, failed []Story) (int, error) {
	marks, err := run.Marks()
	if err != nil {
		return 0, err
	}
	if len(marks) > 0 || len(failed) > ledger.MostRepeated {
		p.say("%d failed and %d promises of safety were broken: none is repeated", len(failed), len(marks))
		return 1, nil
	}
	code := 0
	for _, s := range failed {
		p.say("%s failed and is repeated alone", s.Name)
		if err := flag.Set("test.run", Pattern([]Story{s})); err != nil {
			return 0, err
		}
		if again := p.Run(); again != 0 || len(takeFailed()) > 0 {
			code = 1
		}
	}
	return code, nil
}

// handful is how many stories next to those of the tier Soak a round of soaking performs.
const handful = 6

// soak performs rounds until the time is over: the stories of the tier Soak and some others drawn by lot, with a seed of its own each.
func (p Program) soak(ctx context.Context, named bool) (int, error) {
	end, err := busy(ctx, p.Soak.Load)
	if err != nil {
		return 0, err
	}
	defer end()
	var bad []uint64
	begun := time.Now()
	for seed := p.Soak.Seed; time.Since(begun).Hours() < p.Soak.Hours; seed++ {
		p.Soak.Reseed(seed)
		if !named {
			if err := flag.Set("test.run", Pattern(Round(Table, seed))); err != nil {
				return 0, err
			}
		}
		if p.Run() != 0 {
			bad = append(bad, seed)
		}
		p.say("soaked for %s, seed %d; rounds that failed: %v", time.Since(begun).Round(time.Minute), seed, bad)
	}
	return min(len(bad), 1), nil
}

// Round are the stories of one round of soaking.
func Round(table []Story, seed uint64) (round []Story) {
	draw := rand.New(rand.NewPCG(seed, 0))
	var others []Story
	for _, s := range table {
		if s.Tier == Soak {
			round = append(round, s)
		} else {
			others = append(others, s)
		}
	}
	draw.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return slices.Concat(round, others[:min(handful, len(others))])
}

// loops uses a CPU for as long as the process that started it is there.
const loops = `while [ -d /proc/$PPID ]; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done`

// busy runs processes that do nothing but use a CPU each, until end is called or this process ends.
func busy(ctx context.Context, n int) (end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all []*exec.Cmd
	end = func() {
		cancel()
		for _, loop := range all {
			_ = loop.Wait() // it was killed
		}
	}
	for range n {
		loop := exec.CommandContext(ctx, "sh", "-c", loops)
		if err := loop.Start(); err != nil {
			end()
			return nil, fmt.Errorf("start a busy loop: %w", err)
		}
		all = append(all, loop)
	}
	return end, nil
}
