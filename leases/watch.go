package leases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// watchTimeout is how long a watch lives at least before the server ends it: client-go's reflectors use the same, and draw
// up to as much again, so that a fleet does not come back together.
const watchTimeout = 5 * time.Minute

// WatchRecord calls seen with each version of the cluster record, the present one first, until the server ends the watch
// (nil: begin again), it fails, or ctx ends. It watches the one Lease by name, which the API server indexes: no other
// Lease's renewal reaches the watcher. A version that was seen is a hint and no more: what is acted upon is read live.
func (s *Store) WatchRecord(ctx context.Context, seen func(Version)) error {
	return s.watch(ctx, RecordName(s.cluster), func(lease *coordinationv1.Lease) { seen(Version(lease.ResourceVersion)) })
}

// watch calls seen with the one Lease whenever it changes.
func (s *Store) watch(ctx context.Context, name string, seen func(*coordinationv1.Lease)) error {
	seconds := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	w, err := s.leases.Watch(ctx, metav1.ListOptions{
		FieldSelector:  fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		TimeoutSeconds: &seconds,
	})
	if err != nil {
		return fmt.Errorf("watch Lease %s: %w", name, classify(err))
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			lease, isLease := event.Object.(*coordinationv1.Lease)
			if !isLease || event.Type == watch.Error {
				return fmt.Errorf("watch Lease %s: %s: %v", name, event.Type, event.Object)
			}
			seen(lease)
		}
	}
}
