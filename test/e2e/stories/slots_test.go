package stories

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

// performed is when stories ran in virtual time: each waits for its slots and takes its seconds.
func performed(t *testing.T, capacity int, stories []Story, during func(*Slots, Story)) (order []string, most int) {
	t.Helper()
	slots := NewSlots(capacity)
	for range stories {
		slots.Announce()
	}
	var group errgroup.Group
	in := make(chan Story)
	out := make(chan Story)
	for _, s := range stories {
		group.Go(func() error {
			slots.Enter(s.Etcds, time.Duration(s.Seconds)*time.Second)
			in <- s
			if during != nil {
				during(slots, s)
			} else {
				time.Sleep(time.Duration(s.Seconds) * time.Second)
			}
			out <- s
			slots.Leave(s.Etcds)
			return nil
		})
	}
	now := 0
	for done := 0; done < len(stories); {
		select {
		case s := <-in:
			order = append(order, s.Name)
			now += s.Etcds
			most = max(most, now)
		case s := <-out:
			now -= s.Etcds
			done++
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	return order, most
}

// TestLongestStoriesEnterFirst: stories enter the longest first and never too many at once.
func TestLongestStoriesEnterFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []Story{
			{Name: "short", Etcds: 1, Seconds: 1}, {Name: "long", Etcds: 5, Seconds: 50}, {Name: "heavy", Etcds: 12, Seconds: 20},
			{Name: "longest", Etcds: 5, Seconds: 60}, {Name: "light", Etcds: 2, Seconds: 10},
		}
		begun := time.Now()
		order, most := performed(t, 12, table, nil)
		// The two longest enter at the same time.
		if slices.Sort(order[:2]); !slices.Equal(order[:3], []string{"long", "longest", "heavy"}) {
			t.Errorf("they entered in the order %v", order)
		}
		if most > 12 {
			t.Errorf("%d etcds ran at once", most)
		}
		for i := range table {
			table[i].With = Alongside
		}
		if took, want := time.Since(begun), Span(table, Facts{}); took != want {
			t.Errorf("they took %s, and Span says %s", took, want)
		}
	})
}

// A story that rests leaves room for others, and has its slots at once when it goes on.
func TestRestingStoryLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ended := map[string]time.Duration{}
		var mu sync.Mutex
		during := func(slots *Slots, s Story) {
			if s.Name == "rests" {
				awake := slots.Rest(s.Etcds)
				time.Sleep(50 * time.Second)
				awake()
			}
			time.Sleep(time.Duration(s.Seconds) * time.Second)
			mu.Lock()
			defer mu.Unlock()
			ended[s.Name] = time.Since(begun)
		}
		table := []Story{{Name: "rests", Etcds: 12, Seconds: 100}, {Name: "other", Etcds: 11, Seconds: 60}, {Name: "last", Etcds: 1, Seconds: 10}}
		performed(t, 12, table, during)
		want := map[string]time.Duration{"other": 60 * time.Second, "rests": 150 * time.Second, "last": 160 * time.Second}
		for name, at := range want {
			if ended[name] != at {
				t.Errorf("%s ended after %s, want %s", name, ended[name], at)
			}
		}
	})
}
