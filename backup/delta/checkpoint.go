package delta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// hashTimeout of a checkpoint: HashKV reads the whole database.
	hashTimeout = 2 * time.Minute
	// besideTimeout of what is asked next to the hash: a delta waits for it, once an hour, and AuthStatus takes a quorum, for
	// which etcd itself waits some seconds.
	besideTimeout = 30 * time.Second
)

// Checkpoint is what etcd said of itself when the delta was closed: anyone who restores up to Revision, and compacts at
// CompactRevision, must get the same HashKV.
type Checkpoint struct {
	Revision, CompactRevision int64
	HashKV                    uint32
	MemberID                  uint64
	Beside
}

// Beside to is what a checkpoint reports next to the hash. What is nil was not reported: etcd did not answer, or refused to, or anyone who wrote
// the delta did not ask.
type Beside struct {
	// Keys that were alive at the checkpoint's revision.
	Keys *int64 `json:"keys,omitempty"`
	// Leases that were alive, and Auth what was so of users and roles, when the delta was closed: neither has revisions.
	Leases *int64 `json:"leases,omitempty"`
	Auth   *Auth  `json:"auth,omitempty"`
}

// Auth is the state of users and roles.
type Auth struct {
	Enabled bool `json:"enabled"`
	// Revision counts the changes of users and roles, and disabling. Enabling is no change.
	Revision uint64 `json:"revision"`
}

// AskBeside asks the member behind conn. What it does not answer stays nil.
func AskBeside(ctx context.Context, conn grpc.ClientConnInterface, revision int64) (b Beside) {
	ctx, cancel := context.WithTimeout(ctx, besideTimeout)
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

// checkpoint asks the member what it holds, when it is time to.
func (u *uploader) checkpoint(ctx context.Context, revision int64) *Checkpoint {
	if u.every == 0 || u.now().Sub(u.hashed) < u.every {
		return nil
	}
	u.hashed = u.now()
	hashing, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	response, err := etcdserverpb.NewMaintenanceClient(u.conn).HashKV(hashing, &etcdserverpb.HashKVRequest{Revision: revision})
	// 3.5 does not say which revision it hashed.
	if err != nil || response.HashRevision != 0 && response.HashRevision != revision {
		return nil
	}
	return &Checkpoint{
		Revision: revision, CompactRevision: response.CompactRevision, HashKV: response.Hash, MemberID: response.GetHeader().GetMemberId(),
		Beside: AskBeside(ctx, u.conn, revision),
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
	Beside
}

func marshalFooter(c *Checkpoint) ([]byte, error) {
	var w footerJSON
	if c != nil {
		w.Checkpoint = &checkpointJSON{c.Revision, c.CompactRevision, c.HashKV, hexID(c.MemberID), c.Beside}
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
	return &Checkpoint{c.Revision, c.CompactRevision, c.HashKV, uint64(c.MemberID), c.Beside}, nil
}
