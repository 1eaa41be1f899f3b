package delta

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// recording is the loop of a Recorder. Only this goroutine knows what is received, closed and saved, and it waits for
// nothing but its next input.
type recording struct {
	cfg      Config
	book     *leaseBook
	in       chan delivery
	batches  chan *batch
	outcomes chan outcome
	beats    chan beat
	flushes  <-chan flush

	encoder *zstd.Encoder
	status  Status
	// stored is status.Saved for the goroutines that read the revision of etcd.
	stored *atomic.Int64
	// rest is the part of a delivery for which there was no room. last is what was appended last, and whole reports
	// whether its revision is complete.
	rest  []change
	at    time.Time
	last  int64
	whole bool
	// before digests the revision before the first one, digest the revision before the next delta backup.
	before  Digester
	digest  Digest
	member  uint64
	current *batch
	// uploading takes size bytes.
	uploading *batch
	size      int
	seen      beats
	// bounds of future revisions. The watch delivers them late while the store is unavailable, because then nothing is
	// read from it.
	bounds  bounds
	waiting []flush
	fatal   error
	scratch []byte
}

func newRecording(r *Recorder) *recording {
	from := r.cfg.From
	return &recording{
		cfg: r.cfg, in: make(chan delivery), batches: make(chan *batch, 1), outcomes: make(chan outcome), beats: make(chan beat),
		flushes: r.flushes, stored: &r.saved, status: Status{Saved: from - 1, Received: from - 1}, last: from - 1, whole: true,
	}
}

func (l *recording) run(ctx context.Context) error {
	var err error
	if l.encoder, err = newEncoder(l.cfg.Level); err != nil {
		return err
	}
	// An event is at most one and a quarter periods old when its delta backup is closed.
	ticker := time.NewTicker(min(l.cfg.Period/4, time.Second))
	defer ticker.Stop()
	reported := l.cfg.Now()
	for {
		if err := l.append(); err != nil {
			return err
		}
		if l.due() {
			l.close()
		}
		if l.drained() {
			return l.fatal
		}
		var changed bool
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			changed = l.cfg.Now().Sub(reported) >= l.cfg.Period
		case d := <-l.source():
			changed = l.receive(d)
		case o := <-l.outcomes:
			changed = true
			l.uploaded(o)
		case b := <-l.beats:
			changed = true
			l.seen, l.bounds = l.seen.add(b), l.bounds.add(b)
			l.resolvePending()
		case f := <-l.flushes:
			l.waiting = append(l.waiting, f)
			l.resolvePending()
		}
		if changed {
			l.inform()
			reported = l.cfg.Now()
		}
	}
}

// source is the channel to read from. It is nil if there is no room. The rest of a revision is read even then.
func (l *recording) source() <-chan delivery {
	if len(l.rest) > 0 || l.fatal != nil || l.whole && !l.room() {
		return nil
	}
	return l.in
}

// close hands over the current delta backup. There is room for it, because nothing is being uploaded.
func (l *recording) close() {
	l.uploading, l.size = l.current, l.current.writer.Size()
	l.digest = l.current.writer.Header().Last
	l.current = nil
	l.batches <- l.uploading
}

// receive takes a delivery. It reports whether the status changed in a relevant way.
func (l *recording) receive(d delivery) bool {
	if d.err != nil {
		l.status.WatchError = d.err
		if d.fatal {
			l.fatal = d.err
		}
		return true
	}
	pendingUpdate := l.status.WatchError != nil || l.current == nil
	l.status.WatchError = nil
	l.member, l.at = d.member, d.at
	l.rest, l.whole = d.changes, d.whole
	return pendingUpdate
}

// append takes as much of the rest as fits.
func (l *recording) append() error {
	for len(l.rest) > 0 {
		next := l.rest[0]
		// The watch ensures this already. A gap between two delta backups would not be noticed in the store.
		if revision := next.Kv.ModRevision; revision >= l.cfg.From && revision != l.last && revision != l.last+1 {
			return fmt.Errorf("%w: revision %d came after %d", ErrGap, revision, l.last)
		}
		if next.Kv.ModRevision != l.last && !l.room() {
			return nil
		}
		if err := l.appendOne(next); err != nil {
			return err
		}
		l.rest[0] = change{}
		l.rest = l.rest[1:]
	}
	return nil
}

func (l *recording) appendOne(c change) error {
	deletes := c.Type != 0
	key := AppendKey(l.scratch[:0], c.Kv.ModRevision, c.sub, deletes)
	record := appendValue(key, c.Event)
	l.scratch = record[:0]
	value := record[len(key):]
	if c.Kv.ModRevision < l.cfg.From {
		l.before.Add(key, value)
		l.digest = l.before.Sum()
		return nil
	}
	if c.Kv.ModRevision == l.cfg.From && !l.digest.IsZero() && !l.cfg.Before.IsZero() && l.digest != l.cfg.Before {
		return fmt.Errorf("%w: the content of revision %d differs from what was saved", ErrFork, l.cfg.From-1)
	}
	if l.current == nil {
		l.begin()
	}
	var at time.Time
	at, l.bounds = l.bounds.of(c.Kv.ModRevision, l.at)
	if err := l.current.writer.Append(key, value, at); err != nil {
		return fmt.Errorf("record revision %d: %w", c.Kv.ModRevision, err)
	}
	l.last = c.Kv.ModRevision
	l.status.Received = l.last
	if id := c.Kv.Lease; !deletes && id != 0 && l.current.leases[id] == nil {
		l.current.leases[id], _ = l.book.see(id)
	}
	return nil
}

func (l *recording) begin() {
	w := newWriter(Header{Lineage: l.cfg.Lineage, ClusterID: l.cfg.ClusterID, MemberID: l.member, Before: l.digest}, l.encoder)
	l.current = &batch{writer: w, opened: l.at, leases: map[int64]*leaseEntry{}}
}

// room reports whether another revision may be appended.
func (l *recording) room() bool { return l.current == nil || l.current.writer.Size() < l.cfg.MaxBytes }

// boundary reports whether the last revision is complete.
func (l *recording) boundary() bool {
	if len(l.rest) > 0 {
		return l.rest[0].Kv.ModRevision != l.last
	}
	return l.whole
}

// due reports whether the current delta backup must be closed now.
func (l *recording) due() bool {
	if l.current == nil || l.uploading != nil || !l.boundary() {
		return false
	}
	return l.fatal != nil || !l.room() || l.cfg.Now().Sub(l.current.opened) >= l.cfg.Period || l.flushing()
}

// flushing reports whether a flush waits for the current delta backup and for nothing that has yet to arrive.
func (l *recording) flushing() bool {
	for _, f := range l.waiting {
		if f.revision <= l.last {
			return true
		}
	}
	return false
}

// drained reports whether nothing more will arrive and nothing more can be saved. An incomplete revision cannot be
// saved.
func (l *recording) drained() bool {
	if l.fatal == nil || l.uploading != nil {
		return false
	}
	return len(l.rest) == 0 && (l.current == nil || !l.boundary())
}

func (l *recording) uploaded(o outcome) {
	l.status.SaveError = o.err
	if o.err != nil {
		return
	}
	l.status.Saved, l.status.Object = o.saved.Header.To, o.saved
	l.stored.Store(l.status.Saved)
	l.uploading, l.size = nil, 0
	l.resolvePending()
}

// resolvePending responds to each flush whose revisions are saved.
func (l *recording) resolvePending() {
	var at time.Time
	if l.seen, at = l.seen.saved(l.status.Saved); !at.IsZero() {
		l.status.SavedAt = at
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(f flush) bool {
		if f.revision > l.status.Saved {
			return false
		}
		f.done <- l.status.Saved
		return true
	})
}

func (l *recording) inform() {
	s := l.status
	s.Buffered, s.Oldest = l.size, time.Time{}
	if l.current != nil {
		s.Buffered += l.current.writer.Size()
		s.Oldest = l.current.opened
	}
	if l.uploading != nil {
		s.Oldest = l.uploading.opened
	}
	l.cfg.Observe(s)
}

// sequence joins the events of consecutive watches: each event once, in order, without a gap. A watch may break within
// a revision, because large revisions arrive in fragments. The next watch delivers that revision again.
type sequence struct {
	// main and sub are those of the last event that was taken; whole: nothing more of main will come.
	main, sub int64
	whole     bool
	// again counts the events of main that the current watch has delivered.
	again int64
}

// startAt returns the revision at which the next watch must begin. What that watch delivers of this revision is
// dropped, because etcd accepts a watch from the revision of its last compaction, of which parts may be gone (before
// 3.5.16 deletions too).
func (s *sequence) startAt() int64 {
	s.again = 0
	if s.whole {
		return s.main
	}
	return s.main - 1
}

// take reports whether an event is new, and its sub-revision.
func (s *sequence) take(e *mvccpb.Event) (sub int64, isNew bool, err error) {
	revision := e.Kv.ModRevision
	switch {
	case revision < s.main || revision == s.main && s.whole:
		return 0, false, nil
	case revision == s.main:
		sub = s.again
		s.again++
		if sub <= s.sub {
			return 0, false, nil
		}
	case revision == s.main+1 && (s.whole || s.again == s.sub+1):
		s.main, s.whole, s.again = revision, false, 1
	default:
		return 0, false, fmt.Errorf("%w: revision %d came after event %d of revision %d", ErrGap, revision, s.sub, s.main)
	}
	s.sub = sub
	return sub, true, nil
}

// end records that a response is complete. Its last event has the given revision, because etcd never divides a
// revision.
func (s *sequence) end(revision int64) {
	if revision == s.main {
		s.whole = true
	}
}
