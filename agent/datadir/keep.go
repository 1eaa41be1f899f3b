package datadir

import (
	"slices"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
)

const (
	// keepReplaced is how long data is kept that was replaced, as far as there is room: an operator can find out only later what a
	// recovery lost, or why the data differed.
	keepReplaced = 7 * 24 * time.Hour
	// WatchTime is for how long one agent sees such data before it deletes it: a day, in which you can notice and correct a wrong clock.
	WatchTime = 24 * time.Hour
	// maxStep is by how much the clock of the node may differ from the monotonic clock between two looks. A time service corrects smaller
	// differences slowly.
	maxStep = 5 * time.Minute
)

// KeepFacts is the complete input of the decision whether one quarantined directory may go, as far as its content and the clocks matter.
// One clock is not enough: that of a node can be days ahead after a start.
type KeepFacts struct {
	Replaced rules.YesNo  `fact:"the data was replaced"`
	Held     rules.YesNo  `fact:"the volume is short of room, and a later copy has the data"`
	Over     rules.YesNo  `fact:"seven days by the clock of the node"`
	Server   rules.Answer `fact:"seven days by the clock of the API server"`
	Watched  Watched      `fact:"this agent saw it, without a step of the clock"`
	Full     rules.YesNo  `fact:"etcd has no room to start"`
}

// Watched is for how long one agent saw a directory, by a clock that is never set.
type Watched uint8

// The times.
const (
	WatchedBriefly Watched = 1 << iota // for less than WatchTime
	WatchedDay                         // for WatchTime
	WatchedAll                         // for all of the time for which replaced data is kept
)

func (w Watched) String() string { return rules.Word(w, "less than a day", "a day", "seven days") }

// WatchedFor classifies a time. day is WatchTime, or shorter in tests.
func WatchedFor(seen, day time.Duration) Watched {
	switch {
	case seen >= keepReplaced:
		return WatchedAll
	case seen >= day:
		return WatchedDay
	default:
		return WatchedBriefly
	}
}

// KeepVerdict says whether a quarantined directory may go.
type KeepVerdict string

// The verdicts.
const (
	KeepCopy KeepVerdict = "Keep"
	DropCopy KeepVerdict = "May go"
)

// keepRules is the policy. The first match wins. The default is to keep the data.
var keepRules = rules.New(KeepCopy, []rules.Row[KeepFacts, KeepVerdict]{
	{Name: "only-copy", When: KeepFacts{Replaced: rules.No, Full: rules.Yes}, Verdict: KeepCopy,
		Why: "nothing has its content before the member votes again"},
	{Name: "not-usable", When: KeepFacts{Replaced: rules.No}, Verdict: DropCopy,
		Why: "etcd could not continue it, and the quorum has its content"},
	{Name: "later-copy", When: KeepFacts{Held: rules.Yes, Full: rules.No}, Verdict: DropCopy,
		Why: "one more database does not fit on the volume"},
	{Name: "seen-seven-days", When: KeepFacts{Watched: WatchedAll}, Verdict: DropCopy,
		Why: "this agent counted the seven days itself, and needs no clock that can be set"},
	{Name: "not-over", When: KeepFacts{Over: rules.No}, Verdict: KeepCopy,
		Why: "it was replaced less than seven days ago"},
	{Name: "clocks-differ", When: KeepFacts{Server: rules.No}, Verdict: KeepCopy,
		Why: "the clock of the node is ahead of that of the API server"},
	{Name: "one-clock", When: KeepFacts{Server: rules.Unknown}, Verdict: KeepCopy,
		Why: "only the clock of the node says that seven days are over"},
	{Name: "no-room-to-start", When: KeepFacts{Full: rules.Yes}, Verdict: DropCopy,
		Why: "two clocks agree, and etcd cannot wait for another day"},
	{Name: "seen-too-briefly", When: KeepFacts{Watched: WatchedBriefly}, Verdict: KeepCopy,
		Why: "both clocks can have been wrong when the agent started, or were set since"},
	{Name: "clocks-agree", Verdict: DropCopy,
		Why: "two clocks agree, and ran evenly for a day"},
})

// Clocks are two clocks at one moment.
type Clocks struct {
	// Node is the clock of the node. Server is that of the API server, zero if it is not known.
	Node, Server time.Time
}

// Later is the later of both. With it as the time of a move, a clock that is behind does not shorten the time for which the data is kept.
func (c Clocks) Later() time.Time {
	if c.Server.After(c.Node) {
		return c.Server
	}
	return c.Node
}

// Droppable returns the directories that may go by their content and by the clocks. watched says for how long the agent saw a
// directory. full says that etcd has no room to start.
func Droppable(quarantined []Quarantined, now Clocks, room Room, watched func(Quarantined) Watched, full bool) []Quarantined {
	return slices.DeleteFunc(slices.Clone(quarantined), func(a Quarantined) bool {
		f := KeepFacts{
			Replaced: rules.YesNoOf(a.replaced()), Held: rules.YesNoOf(room.short() && slices.ContainsFunc(quarantined, a.heldBy)),
			Over: rules.YesNoOf(a.over(now.Node)), Server: rules.Unknown, Watched: watched(a), Full: rules.YesNoOf(full),
		}
		if !now.Server.IsZero() {
			f.Server = rules.AnswerOf(a.over(now.Server))
		}
		return keepRules.Decide(f).Verdict != DropCopy
	})
}

func (a Quarantined) over(now time.Time) bool { return now.Sub(a.Content.Moved) >= keepReplaced }

// Watch is for how long this process saw quarantined directories. It starts again when the clock of the node was set. The zero value has
// seen nothing. It is safe for concurrent use.
type Watch struct {
	mu sync.Mutex
	// wall and running are the clocks at the last look.
	wall    time.Time
	running time.Duration
	since   map[seen]time.Duration
}

// seen identifies a directory. The name of one that was deleted can be used again.
type seen struct {
	name  string
	moved int64
}

// Look notes which directories are there. running is the time since a fixed moment, by a clock that is never set.
func (w *Watch) Look(quarantined []Quarantined, wall time.Time, running time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wall = wall.Round(0) // without its monotonic clock
	stepped := (wall.Sub(w.wall) - (running - w.running)).Abs() > maxStep
	before := w.since
	w.since = map[seen]time.Duration{}
	for _, a := range quarantined {
		first, known := before[a.seen()]
		if !known || stepped {
			first = running
		}
		w.since[a.seen()] = first
	}
	w.wall, w.running = wall, running
}

// Seen returns for how long the directory had been there at the last look.
func (w *Watch) Seen(a Quarantined) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, known := w.since[a.seen()]
	if !known {
		return 0
	}
	return w.running - first
}

func (a Quarantined) seen() seen { return seen{a.Name, a.Content.Moved.UnixNano()} }
