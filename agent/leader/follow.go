package leader

import (
	"context"
	"time"

	"github.com/etcd-druid/druid/leases"
)

// Pauses before the record is watched again. A watch that is refused, as by a Role of an older druid, costs the API server
// one request per minute; the record is read each recordInterval all the same.
const (
	watchPause    = time.Second
	maxWatchPause = time.Minute
)

// follow puts the newest version of the record that a watch reports into versions, until ctx ends. The watch makes the
// duties prompt and nothing else: they act only on what they read themselves.
func (d *Duties) follow(ctx context.Context, versions chan leases.Version) error {
	failed := false
	for rest := watchPause; ; rest = min(2*rest, maxWatchPause) {
		err := d.Store.WatchRecord(ctx, func(version leases.Version) {
			rest = watchPause
			select {
			case <-versions: // an older one that no one took
			default:
			}
			versions <- version // no one else sends
		})
		if err != nil && !failed && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "record not watched", "err", err)
		}
		failed = err != nil
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}
