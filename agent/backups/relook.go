package backups

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/backup/chain"
)

// relookInterval is how long what was saved is believed to be there: someone may delete it, or another cluster come into
// its place.
const relookInterval = 10 * time.Minute

var errGone = errors.New("backups that were saved are gone from the store: only a new full closes the gap")

// stale says that it is time to look next to the recorder. Without one the store is looked at more often.
func (s *session) stale(now time.Time) bool {
	return s.recorder != nil && s.chain&(ChainWhole|unsound) != 0 && !now.Before(s.looked.Add(s.relook)) && !s.read.resting(now)
}

// observeAgain looks while the recorder goes on, and ends it where nothing more may be saved. A store that does not answer
// leaves the chain as it was: what goes on being saved still leads on from it.
func (s *session) observeAgain(ctx context.Context) {
	was, doubt, saved := s.chain, s.doubt, s.recorder.saved()
	err := s.review(ctx, saved)
	if ctx.Err() != nil {
		s.chain, s.doubt = was, doubt
		return
	}
	if err != nil {
		s.doubt = doubt
		if errors.Is(err, chain.ErrBootstrap) {
			s.chain = ChainUnknown // the place is another cluster's
			s.recorder.end()
		}
		s.read.failed(time.Now())
		s.Metrics.failed(kindStore)
		s.inform.failed(ctx, err)
		return
	}
	s.read.succeeded()
	s.looked = time.Now()
	hindrance := hindrances[s.chain]
	switch {
	case s.chain == ChainAhead:
		s.recorder.end()
	case s.chain == ChainWhole && s.now-s.recorder.received() > s.backlog:
		s.recorder.end() // it is looked again then, and decided
	case s.chain == ChainWhole:
		s.saved = max(s.saved, s.recorder.saved())
	case was == ChainWhole:
		hindrance = errGone
	}
	s.inform.read(ctx, s.newest, s.saved, s.chain, hindrance, s.doubt)
}

// review lists what is there of what was saved before, up to a revision. What etcd compacted meanwhile the recorder has.
func (s *session) review(ctx context.Context, saved int64) error {
	if _, err := s.revision(ctx, 0); err != nil { // before the listing, as look does
		return err
	}
	h, err := s.list(ctx)
	if err != nil {
		return err
	}
	now, _, err := s.after(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		s.chain = ChainAhead
		return nil
	case err != nil:
		return err
	}
	s.now = now
	if s.chain == ChainWhole && s.saved < saved {
		s.chain = ChainBroken
	}
	if s.saved == 0 {
		s.chain = ChainEmpty
	}
	return s.know(h, time.Now())
}
