package delta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

// putTimeout limits one attempt: 8 MiB at 70 kB/s. After that, the upload is tried again.
const putTimeout = 2 * time.Minute

// batch is a delta backup that is not yet closed.
type batch struct {
	writer *Writer
	opened time.Time
	leases map[int64]*leaseEntry
}

// outcome is the result of a batch, or of one attempt to save it.
type outcome struct {
	saved Saved
	err   error // there will be another attempt
}

// uploader closes batches and saves them to the store, one after the other.
type uploader struct {
	store   store.Store
	key     func(from, to int64, at time.Time) string
	conn    grpc.ClientConnInterface
	leases  *leaseBook
	now     func() time.Time
	backoff time.Duration
	// every is the interval of checkpoints; 0 means none. hashed is the time of the last attempt.
	every  time.Duration
	hashed time.Time
}

// run returns when ctx ends or in is closed.
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
			finished, err := b.writer.Finish(u.now(), leases, point)
			if err != nil {
				return fmt.Errorf("close a delta backup: %w", err)
			}
			saved, err := u.save(ctx, finished, inform)
			if err != nil || inform(outcome{saved: saved}) != nil {
				return nil //nolint:nilerr // ctx ended: the next recorder saves what is not in the store
			}
		}
	}
}

// save uploads the delta backup until it succeeds or ctx ends.
func (u *uploader) save(ctx context.Context, finished *FinishedDelta, inform func(outcome) error) (Saved, error) {
	begin, at := u.now(), finished.Header.Closed
	wait := loop.Backoff{First: u.backoff, Last: lastBackoff}
	for {
		key := u.key(finished.Header.From, finished.Header.To, at)
		err := u.put(ctx, key, finished)
		if err == nil {
			return Saved{
				Key: key, Header: finished.Header, Size: finished.Size, SHA256: hex.EncodeToString(finished.SHA256[:]), Took: u.now().Sub(begin),
			}, nil
		}
		if errors.Is(err, errTaken) {
			at = at.Add(time.Millisecond)
			continue
		}
		if err := inform(outcome{err: fmt.Errorf("save revisions %d to %d: %w", finished.Header.From, finished.Header.To, err)}); err != nil {
			return Saved{}, err
		}
		if !pause(ctx, wait.Next()) {
			return Saved{}, ctx.Err()
		}
	}
}

// errTaken means that another object has the name.
var errTaken = errors.New("another object has this name")

// put makes one attempt. The name may be taken by an earlier attempt whose response was lost: then the bytes are
// equal, and the delta backup is saved. It never changes any other object with this name, also not one that cannot be
// read because its key is missing. Overlapping delta backups are allowed.
func (u *uploader) put(ctx context.Context, key string, finished *FinishedDelta) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	_, err := u.store.Put(ctx, key, finished.Reader(), store.PutOptions{IfAbsent: true})
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
	switch _, err := io.Copy(sum, io.LimitReader(body, finished.Size+1)); {
	case errors.Is(err, store.ErrDamaged):
		return errTaken
	case err != nil:
		return fmt.Errorf("compare with %s, which exists: %w", key, err)
	case !bytes.Equal(sum.Sum(nil), finished.SHA256[:]):
		return errTaken
	}
	return nil
}

const (
	// hashTimeout limits a checkpoint, for which HashKV reads the complete database.
	hashTimeout = 2 * time.Minute
	// alongsideTimeout limits the requests next to the hash. A delta backup waits for them once per hour. AuthStatus
	// needs a quorum, for which etcd itself waits some seconds.
	alongsideTimeout = 30 * time.Second
)

// Checkpoint is the state that etcd reported when the delta backup was closed. A restore up to Revision, compacted at
// CompactRevision, must have the same HashKV.
type Checkpoint struct {
	Revision, CompactRevision int64
	HashKV                    uint32
	MemberID                  uint64
	Alongside
}

// Alongside is what a checkpoint records next to the hash. A field is nil if etcd did not respond, refused the
// request, or was not asked.
type Alongside struct {
	// Keys is the number of keys that were alive at the revision of the checkpoint.
	Keys *int64 `json:"keys,omitempty"`
	// Leases is the number of leases that were alive, and Auth the state of users and roles, when the delta backup was
	// closed. Neither has revisions.
	Leases *int64 `json:"leases,omitempty"`
	Auth   *Auth  `json:"auth,omitempty"`
}

// Auth is the state of users and roles.
type Auth struct {
	Enabled bool `json:"enabled"`
	// Revision counts the changes of users and roles, and each disabling. Enabling does not count.
	Revision uint64 `json:"revision"`
}

// AskAlongside requests the data from the member behind conn. Without a response, a field stays nil.
func AskAlongside(ctx context.Context, conn grpc.ClientConnInterface, revision int64) (b Alongside) {
	ctx, cancel := context.WithTimeout(ctx, alongsideTimeout)
	defer cancel()
	all := []byte{0}
	keys, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{
		Key: all, RangeEnd: all, Revision: revision, CountOnly: true, Serializable: true,
	})
	if err == nil {
		b.Keys = &keys.Count
	}
	if leases, err := etcdserverpb.NewLeaseClient(conn).LeaseLeases(ctx, &etcdserverpb.LeaseLeasesRequest{}); err == nil {
		n := int64(len(leases.Leases))
		b.Leases = &n
	}
	if auth, err := etcdserverpb.NewAuthClient(conn).AuthStatus(ctx, &etcdserverpb.AuthStatusRequest{}); err == nil {
		b.Auth = &Auth{Enabled: auth.Enabled, Revision: auth.AuthRevision}
	}
	return b
}

// checkpoint requests the hash from the member if a checkpoint is due.
func (u *uploader) checkpoint(ctx context.Context, revision int64) *Checkpoint {
	if u.every == 0 || u.now().Sub(u.hashed) < u.every {
		return nil
	}
	u.hashed = u.now()
	hashing, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	response, err := etcdserverpb.NewMaintenanceClient(u.conn).HashKV(hashing, &etcdserverpb.HashKVRequest{Revision: revision})
	// etcd 3.5 does not report which revision it hashed.
	if err != nil || response.HashRevision != 0 && response.HashRevision != revision {
		return nil
	}
	return &Checkpoint{
		Revision: revision, CompactRevision: response.CompactRevision, HashKV: response.Hash, MemberID: response.GetHeader().GetMemberId(),
		Alongside: AskAlongside(ctx, u.conn, revision),
	}
}

type footerJSON struct {
	Checkpoint *checkpointJSON `json:"checkpoint,omitempty"`
}

type checkpointJSON struct {
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"`
	HashKV          uint32 `json:"hashKV"`
	MemberID        hexID  `json:"memberID"`
	Alongside
}

func marshalFooter(c *Checkpoint) ([]byte, error) {
	var w footerJSON
	if c != nil {
		w.Checkpoint = &checkpointJSON{c.Revision, c.CompactRevision, c.HashKV, hexID(c.MemberID), c.Alongside}
	}
	return json.Marshal(w)
}

func unmarshalFooter(b []byte) (*Checkpoint, error) {
	var w footerJSON
	if err := json.Unmarshal(b, &w); err != nil || w.Checkpoint == nil {
		return nil, err
	}
	c := w.Checkpoint
	for name, n := range map[string]*int64{"keys": c.Keys, "leases": c.Leases} {
		if n != nil && *n < 0 {
			return nil, fmt.Errorf("a checkpoint with %d %s", *n, name)
		}
	}
	return &Checkpoint{c.Revision, c.CompactRevision, c.HashKV, uint64(c.MemberID), c.Alongside}, nil
}
