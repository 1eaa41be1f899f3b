package datadir

import (
	"context"
	"errors"
	"fmt"
	"slices"

	etcdlayout "go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcd-druid/druid/agent/datadir/volume"
)

// shape is what is known of the entries of a log without keeping them. A log replaces entries: a new leader writes
// other entries to the same indexes, and a snapshot of the leader replaces the entries that do not lead to it.
type shape struct {
	// count of the entries that were read, replaced ones included.
	count uint64
	// terms has the first position of each term among the entries that are not replaced, and last the last entry.
	terms []Position
	last  Position
	cuts  []cut
	// sizes has the bytes of the entries by the index at which a block of them begins.
	sizes map[uint64]int64
}

// cut replaces the entries at index and above that were read before the entry number count.
type cut struct {
	count, index uint64
	// snapshot is the reason, if it is not another entry. A snapshot counts only if it is committed.
	snapshot Position
}

// sizeBlock is how many indexes share a counter of bytes.
const sizeBlock = 1 << 10

func (s *shape) entry(p Position, size int) {
	if s.count > 0 && p.Index <= s.last.Index {
		s.cuts = append(s.cuts, cut{count: s.count, index: p.Index})
		s.terms = slices.DeleteFunc(s.terms, func(t Position) bool { return t.Index >= p.Index })
	}
	if n := len(s.terms); n == 0 || s.terms[n-1].Term != p.Term {
		s.terms = append(s.terms, p)
	}
	if s.sizes == nil {
		s.sizes = map[uint64]int64{}
	}
	s.sizes[p.Index/sizeBlock] += int64(size)
	s.count, s.last = s.count+1, p
}

// snapshot follows raft: a snapshot that matches the log changes nothing, and one that does not match replaces it.
func (s *shape) snapshot(p Position) {
	if s.count == 0 || p.Index >= s.last.Index || p.Index < s.terms[0].Index || s.termAt(p.Index) == p.Term {
		return
	}
	s.cuts = append(s.cuts, cut{count: s.count, index: p.Index, snapshot: p})
}

func (s *shape) termAt(index uint64) (term uint64) {
	for _, t := range s.terms {
		if t.Index <= index {
			term = t.Term
		}
	}
	return term
}

// replaced returns a function that reports whether a record replaces the entry that was read as number count.
func (s *shape) replaced(commit uint64) func(count, index uint64) bool {
	cuts := slices.DeleteFunc(slices.Clone(s.cuts), func(c cut) bool { return c.snapshot.Index > commit })
	return func(count, index uint64) bool {
		return slices.ContainsFunc(cuts, func(c cut) bool { return count < c.count && index >= c.index })
	}
}

// bytesAbove is an upper bound of the bytes in the entries above index.
func (s *shape) bytesAbove(index uint64) (sum int64) {
	for block, size := range s.sizes {
		if block >= (index+1)/sizeBlock {
			sum += size
		}
	}
	return sum
}

// visitError is the error of the function that gets the entries, which is no damage of the log.
type visitError struct{ err error }

func (e *visitError) Error() string { return e.err.Error() }

// Tail is the end of a log: the entries above the index that a backend has applied.
type Tail struct {
	// Above is that index. Last is the last entry of the tail, or zero if it has none.
	Above uint64
	Last  Position
	// Bytes is an upper bound of the size of the entries.
	Bytes int64
	// Damage describes why the tail does not have all that the log had. The tail then ends at the last entry that the
	// readable part shows as committed, because what follows can be replaced by what cannot be read.
	Damage string

	wal      string
	limit    uint64
	replaced func(count, index uint64) bool
}

// ReadTail finds the tail of the log on the volume dir above the index that a backend has applied. Each reads it. A
// log that is damaged is no error; a disk that cannot be read is.
func ReadTail(ctx context.Context, dir string, above uint64) (*Tail, error) {
	t := &Tail{Above: above, wal: etcdlayout.ToWALDir(volume.DataPath(dir))}
	l, err := readLog(ctx, t.wal)
	var found *damage
	if err != nil && !errors.As(err, &found) {
		return nil, fmt.Errorf("read the log in %s: %w", t.wal, err)
	}
	t.limit, t.replaced, t.Bytes = l.shape.last.Index, l.shape.replaced(l.state.GetCommit()), l.shape.bytesAbove(above)
	if found != nil {
		t.Damage, t.limit = found.Error(), min(t.limit, l.state.GetCommit())
	}
	next := above + 1
	err = t.each(ctx, func(e *raftpb.Entry) error {
		if e.GetIndex() != next {
			return errGap
		}
		next, t.Last = next+1, Position{Term: e.GetTerm(), Index: e.GetIndex()}
		return nil
	})
	switch {
	case errors.Is(err, errGap) && t.Damage == "":
		t.Damage = fmt.Sprintf("entry %d is missing", next)
	case err != nil && !errors.Is(err, errGap):
		return nil, fmt.Errorf("read the log in %s: %w", t.wal, err)
	case t.Damage == "" && max(t.Last.Index, above) < l.state.GetCommit():
		t.Damage = fmt.Sprintf("the log ends at index %d, but index %d was committed", max(t.Last.Index, above), l.state.GetCommit())
	}
	t.limit = t.Last.Index
	return t, nil
}

// Each calls do with the entries of the tail in their order. Only one entry at a time is in memory. It fails if it does not read all of the
// entries that ReadTail found, for example on a disk that fails.
func (t *Tail) Each(ctx context.Context, do func(*raftpb.Entry) error) error {
	var read uint64
	err := t.each(ctx, func(e *raftpb.Entry) error {
		read = e.GetIndex()
		return do(e)
	})
	if err == nil && read != t.Last.Index {
		err = fmt.Errorf("it had entries up to index %d, and now it can be read only up to index %d", t.Last.Index, max(read, t.Above))
	}
	if err != nil {
		return fmt.Errorf("read the log in %s: %w", t.wal, err)
	}
	return nil
}

var (
	errGap = errors.New("entries are missing")
	errEnd = errors.New("end of the tail")
)

func (t *Tail) each(ctx context.Context, do func(*raftpb.Entry) error) error {
	if t.limit <= t.Above {
		return nil
	}
	l, count := &raftLog{}, uint64(0)
	l.visit = func(e *raftpb.Entry) error {
		count++
		if e.GetIndex() <= t.Above || t.replaced(count-1, e.GetIndex()) {
			return nil
		}
		if e.GetIndex() > t.limit {
			return errEnd
		}
		if err := do(e); err != nil {
			return err
		}
		if e.GetIndex() == t.limit {
			return errEnd
		}
		return nil
	}
	err := l.read(ctx, t.wal)
	var found *damage
	if errors.Is(err, errEnd) || errors.As(err, &found) {
		return nil
	}
	return err
}
