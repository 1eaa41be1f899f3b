package backups

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Kinds of what is saved, as labels of metrics and in requests.
const (
	kindFull  = "Full"
	kindDelta = "Delta"
	// kindFinal is a full that is the last one, and kept permanently. EtcdSnapshots alone ask for it.
	kindFinal = "Final"
	// kindStore is a failure of reading the store, before anything is saved.
	kindStore = "Store"
)

// Artifact is what was saved on demand.
type Artifact struct {
	Kind string `json:"type"`
	// Key of the object, and where it is as a URI; empty of a delta where there was nothing to save.
	Key string `json:"object,omitempty"`
	URI string `json:"uri,omitempty"`
	// Revision up to which everything is saved.
	Revision int64 `json:"revision"`
	// Size in bytes.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// StorageVersion of etcd that a full needs, as etcd reports it; empty of deltas and where etcd did not report it.
	StorageVersion string `json:"storageVersion,omitempty"`
}

// What a demand is answered with when nothing was saved.
var (
	// ErrIdle: this agent does not back up: it does not lead, there is nothing to do it with, or no full that a delta could
	// follow.
	ErrIdle = errors.New("this agent does not back up now")
	// ErrKind: neither Full nor Delta was asked for.
	ErrKind = errors.New("want Full or Delta")
)

// Snapshot saves all that was acknowledged before it was called, as a full or as a delta, and returns when it is saved.
func (d *Duty) Snapshot(ctx context.Context, kind string) (Artifact, error) {
	s, _ := d.at()
	switch {
	case kind != kindFull && kind != kindDelta:
		return Artifact{}, fmt.Errorf("%w, not %q", ErrKind, kind)
	case s == nil, kind == kindDelta && !s.whole.Load():
		return Artifact{}, ErrIdle
	case kind == kindDelta:
		return s.orders.flush(ctx)
	}
	return s.orders.ask(ctx, kindFull)
}

// final saves what is at hand, so that each revision stays restorable, and then a full that retention never deletes. Where no
// delta is recorded, the full has it all the same.
func (d *Duty) final(ctx context.Context) (Artifact, error) {
	s, _ := d.at()
	if s == nil {
		return Artifact{}, ErrIdle
	}
	if _, err := s.orders.flush(ctx); err != nil && !errors.Is(err, ErrIdle) {
		return Artifact{}, fmt.Errorf("save the last changes before the final full: %w", err)
	}
	return s.orders.ask(ctx, kindFinal)
}

// Flush saves what is at hand, before etcd ends. Without anything to do it for it does nothing.
func (d *Duty) Flush(ctx context.Context) error {
	s, _ := d.at()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.flushFor)
	defer cancel()
	if _, err := s.orders.flush(ctx); !errors.Is(err, ErrIdle) {
		return err
	}
	return nil
}

// answer is what an order came to.
type answer struct {
	artifact Artifact
	err      error
}

// orders are what others than the loop want of a session.
type orders struct {
	// asked holds a mark when someone wants a full.
	asked chan struct{}
	// uri of a key in the store.
	uri func(key string) string

	mu sync.Mutex
	// waits for a full, by its kind.
	waits   map[string][]chan<- answer
	refused bool
	// recorder at work, nil for none.
	recorder *recording
}

func newOrders() *orders {
	return &orders{asked: make(chan struct{}, 1), uri: func(string) string { return "" }, waits: map[string][]chan<- answer{}}
}

// ask for a full, an ordinary or a final one, and wait for it.
func (o *orders) ask(ctx context.Context, kind string) (Artifact, error) {
	wait := make(chan answer, 1)
	o.mu.Lock()
	if o.refused {
		o.mu.Unlock()
		return Artifact{}, ErrIdle
	}
	o.waits[kind] = append(o.waits[kind], wait)
	o.mu.Unlock()
	select {
	case o.asked <- struct{}{}:
	default:
	}
	select {
	case a := <-wait:
		return a.artifact, a.err
	case <-ctx.Done():
		return Artifact{}, ctx.Err()
	}
}

func (o *orders) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waits) > 0
}

// take says of which kind a full is to be that begins now, and returns how to answer all who have asked for that kind by now:
// it has what was acknowledged before. Who asked for the other kind waits for the next one.
func (o *orders) take() (kind string, answer func(Artifact, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind = kindFull
	if len(o.waits[kindFinal]) > 0 {
		kind = kindFinal
	}
	return kind, o.answerAll(kind)
}

// answerAll returns how to answer all who wait for kind now. The caller holds the lock.
func (o *orders) answerAll(kind string) func(Artifact, error) {
	waits := o.waits[kind]
	delete(o.waits, kind)
	return func(a Artifact, err error) {
		for _, wait := range waits {
			wait <- answer{a, err}
		}
	}
}

// refuse all who wait, and anyone who still comes.
func (o *orders) refuse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = true
	for _, kind := range []string{kindFull, kindFinal} {
		o.answerAll(kind)(Artifact{}, ErrIdle) // each channel has room for its one answer
	}
}

// follow says which recorder flushes.
func (o *orders) follow(r *recording) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recorder = r
}

func (o *orders) flush(ctx context.Context) (Artifact, error) {
	o.mu.Lock()
	r := o.recorder
	o.mu.Unlock()
	if r == nil {
		return Artifact{}, ErrIdle
	}
	saved, err := r.Flush(ctx)
	if err != nil {
		return Artifact{}, err
	}
	a := Artifact{Kind: kindDelta, Revision: saved}
	r.mu.Lock()
	defer r.mu.Unlock()
	if object := r.status.Object; object.Header.To == saved {
		a.Key, a.URI, a.Size, a.SHA256 = object.Key, o.uri(object.Key), object.Size, object.SHA256
	}
	return a, nil
}
