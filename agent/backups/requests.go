package backups

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
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

// deleteTimeout bounds the order to delete one full, from its first beginning: anyone who deletes an EtcdSnapshot waits for it.
const deleteTimeout = 5 * time.Minute

// refusal is final: the same will be said as long as no one changes anything.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// delete the full that an order names, once nothing else needs it. What keeps it from being tried is waited for until ctx
// ends, or the order is taken back; what refuses it is final.
func (d *Duty) delete(ctx context.Context, order leases.SnapshotOrder, target leases.SnapshotTarget) (Artifact, error) {
	tries := attempts{pace: d.readPace}
	for {
		var err error
		s, changed := d.at()
		switch {
		case s == nil:
			err = ErrIdle
		case !s.sound.Load():
			err = errors.New("what the store holds is not known for certain now, as the Leases of the backups report")
		default:
			done := make(chan Artifact, 1) // a pass that hangs may end when no one waits for it any more
			err = d.pass(ctx, func(ctx context.Context) error {
				deleted, err := s.delete(ctx, order, target.URI)
				done <- deleted
				return err
			})
			if err == nil {
				return <-done, nil
			}
		}
		var final refusal
		if errors.As(err, &final) || ctx.Err() != nil {
			return Artifact{}, err
		}
		if tries.failed(time.Now()); tries.failures == 1 {
			d.Log.WarnContext(ctx, "deletion of a backup hindered", "uri", target.URI, "err", err)
		}
		await(ctx, changed, time.Until(tries.next))
		if ctx.Err() != nil {
			return Artifact{}, err
		}
	}
}

// delete one full by what a listing of just now shows. One that is gone already is deleted.
func (s *session) delete(ctx context.Context, order leases.SnapshotOrder, uri string) (a Artifact, err error) {
	key, err := s.fullAt(uri)
	if err != nil {
		return Artifact{}, err
	}
	a = Artifact{Kind: kindFull, Key: key, URI: uri}
	t, err := s.begins(ctx)
	if errors.Is(err, errCorrupt) {
		return a, refusal{err}
	}
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, t.client.Close()) }()
	listed, evidence, err := s.survey(ctx)
	if err != nil {
		return a, err
	}
	full, found := find(listed, key)
	if !found {
		s.log.InfoContext(ctx, "backup to delete was gone", "object", key)
		return a, nil
	}
	if reason, needed := listed.Needed(s.self.Lineage, key, evidence); needed {
		return a, refuse("other backups or a restore may need it (%s): retention deletes it once spec.backup.retention does not keep it; "+
			"to have it gone earlier, delete it in the store", reason.Words())
	}
	if err := t.lasts(ctx); errors.Is(err, errCorrupt) {
		return a, refusal{err}
	} else if err != nil {
		return a, err
	}
	if err := s.stands(ctx, order); err != nil {
		return a, err
	}
	a.Revision, a.Size = full.Revision, full.Size
	err = s.drop(ctx, catalog.Verdict{Lineage: full.Lineage, Key: key, At: full.At, Size: full.Size, Reason: reasonOrdered})
	if errors.Is(err, store.ErrLocked) {
		return a, refuse("%w: retention deletes it once it is unlocked and spec.backup.retention does not keep it", err)
	}
	return a, err
}

// stands says, by an error, that an order was taken back: anyone who keeps the backup after all must not lose it to an attempt that waited.
func (s *session) stands(ctx context.Context, order leases.SnapshotOrder) error {
	now, err := s.Leases.SnapshotOrder(ctx, leases.ComponentFullSnapshot)
	if err != nil {
		return fmt.Errorf("whether the deletion is still ordered: %w", err)
	}
	if now.UID != order.UID || now.Kind != order.Kind {
		return refuse("the order was taken back")
	}
	return nil
}

// reasonOrdered is why a full goes that retention would keep.
const reasonOrdered catalog.Reason = "ordered"

// fullAt is the key of the full at a URI, if that is in our place.
func (s *session) fullAt(uri string) (string, error) {
	place := s.orders.uri(s.config.Prefix) + "/"
	name, ours := strings.CutPrefix(uri, place)
	if !ours {
		return "", refuse("it is not below %s, where this cluster is backed up to now: delete it there", place)
	}
	key := s.config.Prefix + "/" + name
	if _, ok := catalog.ParseFull(s.config.Prefix, key); !ok {
		return "", refuse("it is no full backup of this cluster: only these are deleted by order")
	}
	return key, nil
}

func find(c catalog.Catalog, key string) (catalog.Full, bool) {
	for _, h := range c.Histories {
		for _, f := range h.Fulls {
			if f.Key == key {
				return f, true
			}
		}
	}
	return catalog.Full{}, false
}
