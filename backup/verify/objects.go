package verify

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// ObjectState is the result of reading an object.
type ObjectState string

// The states of an object.
const (
	// ObjectIntact: it was read completely, all its checksums match, and the content is what the name says.
	ObjectIntact ObjectState = "intact"
	// ObjectBroken: it can never be used.
	ObjectBroken ObjectState = "broken"
	// ObjectUnknown: it could not be read, so nothing is known about it.
	ObjectUnknown ObjectState = "unknown"
)

// Finding is the result of reading one object.
type Finding struct {
	Lineage catalog.Lineage `json:"lineage"`
	Key     string          `json:"key"`
	Size    int64           `json:"size"`
	State   ObjectState     `json:"state"`
	// Reason describes what is wrong.
	Reason string `json:"reason,omitempty"`
}

// Check reads each object of c completely and reports a finding for each, oldest first. It uses a few MiB of memory,
// independent of their size. Objects that are intact may still not fit together: if a delta backup begins directly
// after another one, both must agree about the revision between them, or the later one is broken. The error is that of
// ctx or inform.
func Check(ctx context.Context, s store.Store, c catalog.Catalog, inform func(Finding) error) error {
	for _, h := range c.Histories {
		v := checker{s: s, ends: map[int64][]end{}}
		if h.Formation == nil {
			if err := inform(Finding{Lineage: h.Lineage, Key: catalog.BootstrapKey(c.Prefix, h.Lineage), State: ObjectBroken, Reason: h.BootstrapProblem}); err != nil {
				return err
			}
		}
		for _, o := range objectsOf(h) {
			f := Finding{Lineage: h.Lineage, Key: o.key, Size: o.size}
			f.State, f.Reason = judgeObject(v.check(ctx, o))
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := inform(f); err != nil {
				return err
			}
		}
	}
	return nil
}

type checker struct {
	s store.Store
	// ends are the delta backups that were read, by their last revision.
	ends map[int64][]end
}

// end is what a delta backup records about its last revision.
type end struct {
	key    string
	digest delta.Digest
}

// judgeObject separates a broken object from one that could not be read.
func judgeObject(err error) (ObjectState, string) {
	if err == nil {
		return ObjectIntact, ""
	}
	_, full := errors.AsType[*snapshot.DamagedError](err)
	_, part := errors.AsType[*delta.DamagedError](err)
	_, other := errors.AsType[*mismatchError](err)
	if full || part || other || errors.Is(err, store.ErrDamaged) {
		return ObjectBroken, err.Error()
	}
	return ObjectUnknown, err.Error()
}

// mismatchError is an intact object that is not what its name says.
type mismatchError struct{ key, reason string }

func (e *mismatchError) Error() string { return e.key + " " + e.reason }

func (v checker) check(ctx context.Context, o object) (err error) {
	r, err := store.Stream(ctx, v.s, o.key, o.size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if o.full != nil {
		return checkFull(*o.full, r)
	}
	return v.checkDelta(*o.delta, r)
}

func checkFull(f catalog.Full, source io.Reader) (err error) {
	r, err := snapshot.Open(f.Key, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if t := r.Trailer(); t.Lineage != string(f.Lineage) || t.Revision != f.Revision {
		return &mismatchError{f.Key, fmt.Sprintf(
			"is a full backup of lineage %q at revision %d, which does not match its name; it was renamed or swapped with another one", t.Lineage, t.Revision)}
	}
	return nil
}

func (v checker) checkDelta(d catalog.Delta, source io.Reader) error {
	r, err := delta.NewReader(source, delta.Expected{Object: d.Key, Lineage: string(d.Lineage), From: d.From, To: d.To})
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		_, err := r.Next()
		if err == io.EOF { //nolint:errorlint // a broken connection may wrap it
			break
		}
		if err != nil {
			return err
		}
	}
	h := r.Header()
	for _, before := range v.ends[d.From-1] {
		if !h.Before.IsZero() && before.digest != h.Before {
			return &mismatchError{d.Key, fmt.Sprintf("does not continue %s: they disagree about revision %d, so the history forked within lineage %s",
				before.key, d.From-1, d.Lineage)}
		}
	}
	v.ends[d.To] = append(v.ends[d.To], end{d.Key, h.Last})
	return nil
}
