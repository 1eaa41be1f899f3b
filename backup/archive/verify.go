package archive

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

// State is what reading an object showed.
type State string

// The states of an object.
const (
	// Sound: it was read to its end, all its checksums hold, and it is what its name says.
	Sound State = "sound"
	// Broken: it can never be used.
	Broken State = "broken"
	// Unknown: it could not be read. That says nothing of it.
	Unknown State = "unknown"
)

// Finding is what reading showed of one object.
type Finding struct {
	Lineage catalog.Lineage `json:"lineage"`
	Key     string          `json:"key"`
	Size    int64           `json:"size"`
	State   State           `json:"state"`
	// Reason says in words what is wrong.
	Reason string `json:"reason,omitempty"`
}

// Verify reads each object of c to its end, and hands report a finding for each, oldest first. It holds a few MiB of memory
// whatever their size. Objects that are each sound may still not fit each other: where a delta begins right after another
// one, both must agree about the revision between them, else the later one is broken. Its error is ctx's or report's.
func Verify(ctx context.Context, s store.Store, c catalog.Catalog, inform func(Finding) error) error {
	for _, h := range c.Histories {
		v := verifier{s: s, ends: map[int64][]end{}}
		if h.Formation == nil {
			if err := inform(Finding{Lineage: h.Lineage, Key: catalog.BootstrapKey(c.Prefix, h.Lineage), State: Broken, Reason: h.BootstrapProblem}); err != nil {
				return err
			}
		}
		for _, o := range objectsOf(h) {
			f := Finding{Lineage: h.Lineage, Key: o.key, Size: o.size}
			f.State, f.Reason = judge(v.verify(ctx, o))
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

type verifier struct {
	s store.Store
	// ends of the deltas that were read, by their last revision.
	ends map[int64][]end
}

// end is what a delta says of its last revision.
type end struct {
	key    string
	digest delta.Digest
}

// judge reports an object that is broken from one that was not read.
func judge(err error) (State, string) {
	if err == nil {
		return Sound, ""
	}
	_, full := errors.AsType[*snapshot.DamagedError](err)
	_, part := errors.AsType[*delta.DamagedError](err)
	_, other := errors.AsType[*mismatchError](err)
	if full || part || other || errors.Is(err, store.ErrDamaged) {
		return Broken, err.Error()
	}
	return Unknown, err.Error()
}

// mismatchError is an object that is sound by itself, and not what it is taken for.
type mismatchError struct{ key, reason string }

func (e *mismatchError) Error() string { return e.key + " " + e.reason }

func (v verifier) verify(ctx context.Context, o object) (err error) {
	r, err := store.Stream(ctx, v.s, o.key, o.size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if o.full != nil {
		return verifyFull(*o.full, r)
	}
	return v.verifyDelta(*o.delta, r)
}

func verifyFull(f catalog.Full, source io.Reader) (err error) {
	r, err := snapshot.Open(f.Key, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if t := r.Trailer(); t.Lineage != string(f.Lineage) || t.Revision != f.Revision {
		return &mismatchError{f.Key, fmt.Sprintf("is a full of lineage %q at revision %d, and not what its name says: it was renamed, or swapped with another one", t.Lineage, t.Revision)}
	}
	return nil
}

func (v verifier) verifyDelta(d catalog.Delta, source io.Reader) error {
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
			return &mismatchError{d.Key, fmt.Sprintf("does not continue %s: they disagree about revision %d, so history forked inside of lineage %s", before.key, d.From-1, d.Lineage)}
		}
	}
	v.ends[d.To] = append(v.ends[d.To], end{d.Key, h.Last})
	return nil
}
