package restore

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The table grows several times and keeps what was noted last for each key.
func TestATableOfKeysKeepsTheLastRecordOfEach(t *testing.T) {
	l, err := newLasts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	random, want, content := rand.New(rand.NewPCG(1, 1)), map[string]place{}, map[string]int64{}
	for main := int64(1); main <= 100_000; main++ {
		key, length := fmt.Sprint("key-", random.IntN(30_000)), random.IntN(1000)
		p := place{main: main, sub: int64(random.IntN(3)), deletes: random.IntN(4) == 0}
		if err := l.note([]byte(key), p, length); err != nil {
			t.Fatal(err)
		}
		if old, known := want[key]; known && l.isAlive([]byte(key), old) {
			t.Fatalf("%s is alive at %+v, after %+v", key, old, p)
		}
		want[key], content[key] = p, int64(length)
	}
	var alive, bytes int64
	for key, p := range want {
		if l.isAlive([]byte(key), p) == p.deletes {
			t.Errorf("%s, last changed at %+v, is alive: %t", key, p, p.deletes)
		}
		if !p.deletes {
			alive, bytes = alive+1, bytes+content[key]
		}
	}
	if l.alive != alive || l.content != bytes || l.keys != uint64(len(want)) || l.slots == firstSlots {
		t.Errorf("%d of %d keys with %d bytes are alive in %d slots, want %d of %d with %d", l.alive, l.keys, l.content, l.slots, alive, len(want), bytes)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
