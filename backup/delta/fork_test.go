package delta

import (
	"testing"

	"github.com/etcd-druid/druid/test/member"
)

// Who goes on where another recorder ended finds out at the first change whether etcd still has that history.
func TestAForkIsNoticedBeforeAnythingIsSaved(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.7", member.Options{}), directory(t)
	f := newTraffic(t, m)
	first := record(t, m, s, 2)
	f.run(50)
	saved := first.flush()
	first.stop()
	all := objects(t, s)
	last := all[len(all)-1]
	if last.To != saved || last.Last.IsZero() {
		t.Fatalf("the store ends with %+v, want revision %d", last.Header, saved)
	}
	f.run(10)
	record(t, m, s, saved+1, func(c *Config) { c.Before = Digest{1} }).ends(ErrFork)
	if now := objects(t, s); len(now) != len(all) {
		t.Errorf("%d deltas, and after a fork %d", len(all), len(now))
	}
	next := record(t, m, s, saved+1, func(c *Config) { c.Before = last.Last })
	next.flush()
	next.stop()
	same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
}
