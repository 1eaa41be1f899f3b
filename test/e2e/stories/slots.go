package stories

import (
	"slices"
	"sync"
	"time"
)

// Capacity is how many etcds may run at once, as Story.Etcds counts them. With twice as many, two cores had no time for elections.
const Capacity = 12

// weight is what a story takes of the capacity: no more than all.
func weight(etcds int) int { return min(max(etcds, 1), Capacity) }

// Slots lets stories in by their weight, the longest first. It lets none in before all that were announced stand in the queue:
// which of them comes first is chance otherwise.
type Slots struct {
	mu        sync.Mutex
	free      int
	announced int
	waiting   []*ticket
}

type ticket struct {
	weight int
	long   time.Duration
	in     chan struct{}
}

// NewSlots is empty.
func NewSlots(capacity int) *Slots { return &Slots{free: capacity} }

// Announce says that one more will Enter.
func (s *Slots) Announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced++
}

// Enter waits for its turn and for the slots of so many etcds.
func (s *Slots) Enter(etcds int, long time.Duration) {
	own := &ticket{weight: weight(etcds), long: long, in: make(chan struct{})}
	s.mu.Lock()
	s.announced--
	at, _ := slices.BinarySearchFunc(s.waiting, own, func(a, b *ticket) int {
		if a.long >= b.long { // of two that are as long the one that came first stays first
			return -1
		}
		return 1
	})
	s.waiting = slices.Insert(s.waiting, at, own)
	s.admit()
	s.mu.Unlock()
	<-own.in
}

// Leave gives back the slots of so many etcds.
func (s *Slots) Leave(etcds int) { s.add(weight(etcds)) }

// Rest gives back all slots but one until awake is called. That takes them again at once and waits for none: none is stopped in
// the middle of a story, and those that come next wait until there is room again.
func (s *Slots) Rest(etcds int) (awake func()) {
	s.add(weight(etcds) - 1)
	return func() { s.add(1 - weight(etcds)) }
}

func (s *Slots) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	s.admit()
}

// admit lets in from the head of the queue. A story that is long and heavy is not passed by others: it would come last.
func (s *Slots) admit() {
	for s.announced <= 0 && len(s.waiting) > 0 && s.waiting[0].weight <= s.free {
		s.free -= s.waiting[0].weight
		close(s.waiting[0].in)
		s.waiting = s.waiting[1:]
	}
}
