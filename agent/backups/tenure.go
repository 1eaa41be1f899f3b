package backups

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/membership"
)

// errTerm says that another term began.
var errTerm = errors.New("leadership changed")

// errCorrupt keeps everything: the older backups may be the last ones without the damage.
var errCorrupt = errors.New("the alarm CORRUPT stands: no backup is deleted until it is disarmed")

// tenure is the raft term in which something may be deleted.
type tenure struct {
	s      *session
	client *clientv3.Client
	term   uint64
}

// begins reads the term that our member leads in.
func (s *session) begins(ctx context.Context) (t *tenure, err error) {
	client, err := s.Dial(ctx, s.Local)
	if err != nil {
		return nil, err
	}
	t = &tenure{s: s, client: client}
	if t.term, err = t.read(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return t, nil
}

func (t *tenure) read(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	status, err := membership.ReadStatus(ctx, t.client, t.s.Local)
	if err != nil {
		return 0, err
	}
	if status.Role != membership.RoleLeader || status.ClusterID != t.s.self.ClusterID {
		return 0, errTerm
	}
	if status.Corrupt() {
		return 0, errCorrupt
	}
	return status.RaftTerm, nil
}

// lasts says, by an error, that the term is over, or that nothing may be deleted in it any more. It is asked before each
// deletion.
func (t *tenure) lasts(ctx context.Context) error {
	switch now, err := t.read(ctx); {
	case err != nil:
		return err
	case now != t.term:
		return fmt.Errorf("%w: term %d, was %d", errTerm, now, t.term)
	}
	return nil
}
