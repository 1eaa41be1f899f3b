package restore

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// traffic makes n random changes of all kinds that etcd supports.
func (s *source) traffic(n int) {
	s.tb.Helper()
	for range n {
		s.change()
	}
}

// stable makes n changes, and waits until the short leases have expired: each expiry makes a revision at an
// unpredictable time.
func (s *source) stable(n int) {
	s.tb.Helper()
	s.traffic(n)
	s.await("the leases that die soon to be gone", func() bool {
		alive, err := s.m.Client.Leases(s.tb.Context())
		return err == nil && !slices.ContainsFunc(alive.Leases, func(l clientv3.LeaseStatus) bool { return slices.Contains(s.dying, l.ID) })
	})
}

func (s *source) change() {
	s.tb.Helper()
	switch kind := s.random.IntN(100); {
	case kind < 45:
		s.do(clientv3.OpPut(s.key(), s.value()))
	case kind < 55:
		s.do(clientv3.OpDelete(s.key()))
	case kind < 58:
		s.do(clientv3.OpDelete("prefix/", clientv3.WithPrefix()))
	case kind < 60:
		s.do(clientv3.OpDelete("a key that never was"))
	case kind < 75:
		s.do(s.transaction(3))
	case kind < 80:
		s.do(s.putAndDeleted(s.key()))
	case kind < 90:
		s.leased()
	case kind < 92:
		s.revoke()
	case kind < 93:
		s.do(clientv3.OpPut("large", string(make([]byte, 1<<20))+s.key()))
	case kind < 96:
		s.do(clientv3.OpPut(string([]byte{0xff, 0, byte(s.random.IntN(4)), 0xfe}), s.value()))
	case kind < 98:
		s.do(clientv3.OpPut(s.key(), "", clientv3.WithIgnoreValue()))
	default:
		s.do(clientv3.OpPut(s.key(), "kept", clientv3.WithIgnoreLease()))
	}
}

func (s *source) key() string {
	if s.random.IntN(4) == 0 {
		return fmt.Sprintf("prefix/%d", s.random.IntN(6))
	}
	return fmt.Sprintf("key-%d", s.random.IntN(60))
}

func (s *source) value() string {
	value := make([]byte, s.random.IntN(3)*s.random.IntN(3)*s.random.IntN(700))
	for i := range value {
		value[i] = byte(s.random.IntN(256))
	}
	return string(value)
}

// do makes a change. etcd rejects a change that needs a key that does not exist.
func (s *source) do(op clientv3.Op) {
	s.tb.Helper()
	if _, err := s.m.Client.Do(s.tb.Context(), op); err != nil && !errors.Is(err, rpctypes.ErrKeyNotFound) {
		s.tb.Fatal(err)
	}
}

// transaction returns several changes of different keys.
func (s *source) transaction(n int) clientv3.Op {
	var ops []clientv3.Op
	for i := range n {
		key := fmt.Sprintf("txn-%d-%d", i, s.random.IntN(5))
		if s.random.IntN(3) == 0 {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, s.value()))
		}
	}
	return clientv3.OpTxn(nil, ops, nil)
}

// putAndDeleted changes a key twice in one revision. etcd rejects that in one transaction, and in the other order
// always, but not in two consecutive transactions within a third.
func (s *source) putAndDeleted(key string) clientv3.Op {
	put, gone := clientv3.OpPut(key, s.value()), clientv3.OpDelete(key)
	return clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpTxn(nil, []clientv3.Op{put}, nil), clientv3.OpTxn(nil, []clientv3.Op{gone}, nil),
	}, nil)
}

// leased puts a key under a lease that lives long, or under one that expires soon.
func (s *source) leased() {
	s.tb.Helper()
	if len(s.granted) == 0 || s.random.IntN(2) == 0 {
		ttl := int64(3600)
		if s.random.IntN(3) == 0 {
			ttl = 1
		}
		lease, err := s.m.Client.Grant(s.tb.Context(), ttl)
		if err != nil {
			s.tb.Fatal(err)
		}
		if ttl == 1 {
			s.dying = append(s.dying, lease.ID)
			_, _ = s.m.Client.Put(s.tb.Context(), s.key(), "short", clientv3.WithLease(lease.ID)) // it may be gone by now
			return
		}
		s.granted = append(s.granted, lease.ID)
	}
	s.do(clientv3.OpPut(s.key(), s.value(), clientv3.WithLease(s.granted[s.random.IntN(len(s.granted))])))
}

func (s *source) revoke() {
	s.tb.Helper()
	if len(s.granted) == 0 {
		return
	}
	if _, err := s.m.Client.Revoke(s.tb.Context(), s.granted[0]); err != nil {
		s.tb.Fatal(err)
	}
	s.granted = s.granted[1:]
}
