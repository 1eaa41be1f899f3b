package delta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/etcd-druid/druid/backup/store"
)

// putTimeout of one attempt: 8 MiB at 70 kB/s. A store that hangs for longer is asked again.
const putTimeout = 2 * time.Minute

// batch is a delta in the making.
type batch struct {
	writer *Writer
	opened time.Time
	leases map[int64]*leaseEntry
}

// outcome is what became of a batch, or of one attempt at it.
type outcome struct {
	saved Saved
	err   error // there will be another attempt
}

// uploader closes batches and puts them into the store, one after the other.
type uploader struct {
	store   store.Store
	key     func(from, to int64, at time.Time) string
	conn    grpc.ClientConnInterface
	leases  *leaseBook
	now     func() time.Time
	backoff time.Duration
	// every is how often a checkpoint is taken; 0: never. hashed is when it was last tried.
	every  time.Duration
	hashed time.Time
}

// run returns when ctx ended or in is closed.
func (u *uploader) run(ctx context.Context, in <-chan *batch, out chan<- outcome) error {
	inform := func(o outcome) error {
		select {
		case out <- o:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case b, ok := <-in:
			if !ok {
				return nil
			}
			leases, point := u.leases.collect(ctx, b.leases), u.checkpoint(ctx, b.writer.Header().To)
			if point == nil {
				leases.Alive, leases.Known = nil, false // it is there to be compared with a checkpoint
			}
			sealed, err := b.writer.Finish(u.now(), leases, point)
			if err != nil {
				return fmt.Errorf("close a delta: %w", err)
			}
			saved, err := u.save(ctx, sealed, inform)
			if err != nil || inform(outcome{saved: saved}) != nil {
				return nil //nolint:nilerr // ctx ended: what is not in the store is the next recorder's
			}
		}
	}
}

// save puts the delta, again and again until it is there or ctx ends.
func (u *uploader) save(ctx context.Context, sealed *Sealed, inform func(outcome) error) (Saved, error) {
	begin, at := u.now(), sealed.Header.Closed
	for wait := u.backoff; ; {
		key := u.key(sealed.Header.From, sealed.Header.To, at)
		err := u.put(ctx, key, sealed)
		if err == nil {
			return Saved{
				Key: key, Header: sealed.Header, Size: sealed.Size, SHA256: hex.EncodeToString(sealed.SHA256[:]), Took: u.now().Sub(begin),
			}, nil
		}
		if errors.Is(err, errTaken) {
			at = at.Add(time.Millisecond)
			continue
		}
		if err := inform(outcome{err: fmt.Errorf("save revisions %d to %d: %w", sealed.Header.From, sealed.Header.To, err)}); err != nil {
			return Saved{}, err
		}
		if !pause(ctx, wait) {
			return Saved{}, ctx.Err()
		}
		wait = min(2*wait, lastBackoff)
	}
}

// errTaken: the name is another object's.
var errTaken = errors.New("the name is taken")

// put makes one attempt. The name may be taken by what an earlier attempt put whose answer was lost: then the bytes are
// the same, and it is saved. Whatever else has the name stays as it is, also what no one can read any more because its key was
// taken away since; overlap is legal.
func (u *uploader) put(ctx context.Context, key string, sealed *Sealed) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	_, err := u.store.Put(ctx, key, sealed.Reader(), store.PutOptions{IfAbsent: true})
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	body, err := u.store.Get(ctx, key, 0, -1)
	if errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrDamaged) {
		return errTaken
	}
	if err != nil {
		return fmt.Errorf("compare with %s, which exists: %w", key, err)
	}
	defer body.Close()
	sum := sha256.New()
	switch _, err := io.Copy(sum, io.LimitReader(body, sealed.Size+1)); {
	case errors.Is(err, store.ErrDamaged):
		return errTaken
	case err != nil:
		return fmt.Errorf("compare with %s, which exists: %w", key, err)
	case !bytes.Equal(sum.Sum(nil), sealed.SHA256[:]):
		return errTaken
	}
	return nil
}
