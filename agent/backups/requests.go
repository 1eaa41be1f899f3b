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

// Kinds of backups, as labels of metrics and in requests.
const (
	kindFull  = "Full"
	kindDelta = "Delta"
	// kindFinal is a final full backup, which is kept permanently. Only EtcdSnapshots request it.
	kindFinal = "Final"
	// kindStore is an error while reading the store, before anything is saved.
	kindStore = "Store"
)

// Artifact is a backup made on demand.
type Artifact struct {
	Kind string `json:"type"`
	// Key of the object, and its location as a URI. Both are empty for a delta backup if there was nothing to save.
	Key string `json:"object,omitempty"`
	URI string `json:"uri,omitempty"`
	// Revision up to which everything is saved.
	Revision int64 `json:"revision"`
	// Size in bytes.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// StorageVersion is the etcd storage version that a full backup needs, as etcd reports it. It is empty for delta
	// backups and if etcd did not report it.
	StorageVersion string `json:"storageVersion,omitempty"`
}

// Errors of requests for which nothing was saved.
var (
	// ErrIdle means that this agent makes no backups: it does not lead, backups are not configured, or there is no
	// full backup that a delta backup could follow.
	ErrIdle = errors.New("this agent makes no backups now")
	// ErrKind means that the request was for neither Full nor Delta.
	ErrKind = errors.New("want Full or Delta")
)

// Snapshot saves everything that was acknowledged before the call, as a full or a delta backup. It returns when the
// backup is saved.
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

// final saves a delta backup, so that each revision stays restorable, and then a full backup that retention never
// deletes. If no delta backups are recorded, the full backup contains the changes too.
func (d *Duty) final(ctx context.Context) (Artifact, error) {
	s, _ := d.at()
	if s == nil {
		return Artifact{}, ErrIdle
	}
	if _, err := s.orders.flush(ctx); err != nil && !errors.Is(err, ErrIdle) {
		return Artifact{}, fmt.Errorf("save the last changes before the final full backup: %w", err)
	}
	return s.orders.ask(ctx, kindFinal)
}

// Flush saves the buffered changes before etcd ends. It does nothing if this agent makes no backups.
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

// answer is the result of a request.
type answer struct {
	artifact Artifact
	err      error
}

// orders are the requests to a session from outside its loop.
type orders struct {
	// asked has an entry while the session has to decide again, because a full backup is requested for example.
	asked chan struct{}
	// uri returns the URI of a key in the store.
	uri func(key string) string

	mu sync.Mutex
	// waits has the requests that wait for a full backup, by kind.
	waits   map[string][]chan<- answer
	refused bool
	// recorder that is running, or nil.
	recorder *recording
}

func newOrders() *orders {
	return &orders{asked: make(chan struct{}, 1), uri: func(string) string { return "" }, waits: map[string][]chan<- answer{}}
}

// ask requests an ordinary or a final full backup and waits for it.
func (o *orders) ask(ctx context.Context, kind string) (Artifact, error) {
	wait := make(chan answer, 1)
	o.mu.Lock()
	if o.refused {
		o.mu.Unlock()
		return Artifact{}, ErrIdle
	}
	o.waits[kind] = append(o.waits[kind], wait)
	o.mu.Unlock()
	o.wake()
	select {
	case a := <-wait:
		return a.artifact, a.err
	case <-ctx.Done():
		return Artifact{}, ctx.Err()
	}
}

// wake lets the session decide again.
func (o *orders) wake() {
	select {
	case o.asked <- struct{}{}:
	default:
	}
}

func (o *orders) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waits) > 0
}

// take returns the kind of the full backup that begins now, and a func that answers all requests for that kind so far:
// the backup contains everything acknowledged before it. Requests for the other kind wait for the next backup.
func (o *orders) take() (kind string, answer func(Artifact, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind = kindFull
	if len(o.waits[kindFinal]) > 0 {
		kind = kindFinal
	}
	return kind, o.answerAll(kind)
}

// answerAll returns a func that answers all requests that wait for kind now. The caller holds the lock.
func (o *orders) answerAll(kind string) func(Artifact, error) {
	waits := o.waits[kind]
	delete(o.waits, kind)
	return func(a Artifact, err error) {
		for _, wait := range waits {
			wait <- answer{a, err}
		}
	}
}

// refuse rejects all waiting requests and all later ones.
func (o *orders) refuse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = true
	for _, kind := range []string{kindFull, kindFinal} {
		o.answerAll(kind)(Artifact{}, ErrIdle) // each channel has room for its one answer
	}
}

// follow sets the recorder that flush uses.
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

// deleteTimeout bounds a request to delete one full backup, from its first start, because the deletion of an
// EtcdSnapshot waits for it.
const deleteTimeout = 5 * time.Minute

// refusal is a final error: a retry has the same result until the request, the spec or the store changes.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// delete deletes the full backup that an order names, if nothing else needs it. While it cannot be tried, it waits
// until ctx ends or the order is canceled. A refusal is final.
func (d *Duty) delete(ctx context.Context, order leases.SnapshotOrder, target leases.SnapshotTarget) (Artifact, error) {
	tries := attempts{pace: d.readPace}
	for {
		var err error
		s, changed := d.at()
		switch {
		case s == nil:
			err = ErrIdle
		case !s.sound.Load():
			err = errors.New("the content of the store is not certain now (see the Leases of the backups)")
		default:
			done := make(chan Artifact, 1) // a pass that hangs can end after the caller has returned
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
			d.Log.WarnContext(ctx, "deletion of a backup failed, retrying", "uri", target.URI, "err", err)
		}
		await(ctx, changed, time.Until(tries.next))
		if ctx.Err() != nil {
			return Artifact{}, err
		}
	}
}

// delete deletes one full backup based on a new listing. It succeeds if the backup was deleted already.
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
	defer func() { t.done(err) }()
	listed, evidence, err := s.survey(ctx)
	if err != nil {
		return a, err
	}
	full, found := find(listed, key)
	if !found {
		s.log.InfoContext(ctx, "backup was already deleted", "object", key)
		return a, nil
	}
	if reason, needed := listed.Needed(s.self.Lineage, key, evidence); needed {
		return a, refuse("other backups or a restore might need the backup (%s); retention deletes it when spec.backup.retention no longer keeps it; "+
			"to delete it earlier, delete it in the store", reason.Words())
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
		return a, refuse("%w: retention deletes it when the lock has ended and spec.backup.retention no longer keeps it", err)
	}
	return a, err
}

// stands returns an error if the order was canceled, so that an attempt that waited does not delete a backup that the
// user decided to keep.
func (s *session) stands(ctx context.Context, order leases.SnapshotOrder) error {
	now, err := s.Leases.SnapshotOrder(ctx, leases.ComponentFullSnapshot)
	if err != nil {
		return fmt.Errorf("read whether the deletion is still requested: %w", err)
	}
	if now.UID != order.UID || now.Kind != order.Kind {
		return refuse("the request was canceled")
	}
	return nil
}

// reasonOrdered is the reason for the deletion of a full backup that retention would keep.
const reasonOrdered catalog.Reason = "ordered"

// fullAt returns the key of the full backup at a URI, if the URI is in the place of this cluster.
func (s *session) fullAt(uri string) (string, error) {
	place := s.orders.uri(s.config.Prefix) + "/"
	name, ours := strings.CutPrefix(uri, place)
	if !ours {
		return "", refuse("the backup is not below %s, the present place of this cluster's backups; delete it in its own store", place)
	}
	key := s.config.Prefix + "/" + name
	if _, ok := catalog.ParseFull(s.config.Prefix, key); !ok {
		return "", refuse("the object is not a full backup of this cluster, and only full backups can be deleted on request")
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
