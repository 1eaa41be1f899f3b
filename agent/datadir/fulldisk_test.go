package datadir

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

const (
	// smallDisk has room for two files of etcd's log, which have 64 MiB each, and for a database. largerDisk is that disk after it grew.
	smallDisk, largerDisk = 224 << 20, 448 << 20
	// noSpace is what etcd writes to its log.
	noSpace = "no space left on device"
	// endsWithin is how long an etcd may run on a full disk until more is written. At a start it applies again what it could not write,
	// and pages of the database that were in use before can be free then. So it can fit.
	endsWithin = 10 * time.Second
)

// The disk of one of three members is full, so that its etcd ends at a write, and at each start or at a write after it. Its data counts as
// intact all that time, so that no agent moves it away. When there is space, because files were deleted or because the volume grew, the
// member serves again under its ID, with every write that etcd acknowledged.
func TestDataOnAFullDiskStaysIntact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	machine.SmallDisk(t, dir, smallDisk)
	all := member.StartEach(t, "3.7", "http", member.Options{}, member.Options{Dir: volume.DataPath(dir)}, member.Options{})
	m, others := all[1], all[0].Client
	id := memberID(t, m.Client, m.Endpoint)
	acknowledged := 0
	for _, space := range []struct {
		name string
		make func() error
	}{
		{"files are deleted", func() error { return machine.EmptyDisk(dir) }},
		{"the volume grows", func() error { return machine.GrowDisk(dir, largerDisk) }},
	} {
		machine.FillDisk(t, dir)
		acknowledged = writeUntil(t, others, acknowledged, ends(t, m))
		isIntact(t, dir, space.name)
		for range 3 { // as launch does
			m.Restart(t)
			ended := ends(t, m)
			select {
			case <-ended:
			case <-time.After(endsWithin):
				acknowledged = writeUntil(t, others, acknowledged, ended)
			}
			isIntact(t, dir, space.name)
		}
		if n := strings.Count(m.Log(), noSpace); n == 0 {
			t.Errorf("the log of etcd does not have %q", noSpace)
		}
		acknowledged = writeUntil(t, others, acknowledged, nil)
		if err := space.make(); err != nil {
			t.Fatal(err)
		}
		m.Restart(t)
		hasAll(t, m, acknowledged)
		if now := memberID(t, m.Client, m.Endpoint); now != id {
			t.Errorf("the member has ID %x, want %x as before its disk was full", now, id)
		}
	}
	t.Logf("%d acknowledged writes are all there", acknowledged)
}

// ends returns a channel that is closed when etcd has ended by itself.
func ends(t *testing.T, m *member.Member) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.AwaitEnd(t)
	}()
	return ended
}

// writeUntil puts values of 256 KiB until the channel is closed, at most 400, or 10 without a channel. That is more than fits when a start of
// etcd frees most of a file of its log, because it repairs the end that was not written. It returns how many writes were
// acknowledged in total. A write that fails is repeated: the member that ends can be the leader.
func writeUntil(t *testing.T, etcd *clientv3.Client, acknowledged int, ended <-chan struct{}) int {
	t.Helper()
	last := acknowledged + 10
	if ended != nil {
		last = acknowledged + 400
	}
	for late := time.Now().Add(maxWait); acknowledged < last; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := etcd.Put(ctx, fmt.Sprintf("large/%d", acknowledged), strings.Repeat("x", 256<<10))
		cancel()
		switch {
		case err == nil:
			acknowledged++
		case time.Now().After(late):
			t.Fatalf("write next to a member without space: %v", err)
		}
		select {
		case <-ended:
			return acknowledged
		default:
		}
	}
	if ended != nil {
		<-ended
	}
	return acknowledged
}

// isIntact checks what an agent sees of the data.
func isIntact(t *testing.T, dir, until string) {
	t.Helper()
	r, err := Inspect(t.Context(), dir, Options{EtcdVersion: "3.7", Full: true})
	if err != nil || r.State != Intact {
		t.Errorf("the data is %s (%s %s), %v, want it intact until %s", r.State, r.Kind, r.Detail, err, until)
	}
}

// hasAll waits until the member itself has all writes.
func hasAll(t *testing.T, m *member.Member, want int) {
	t.Helper()
	for poll, late := time.Tick(50*time.Millisecond), time.After(maxWait); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		got, err := m.Client.Get(ctx, "large/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if cancel(); err == nil && got.Count == int64(want) {
			return
		}
		select {
		case <-poll:
		case <-late:
			t.Fatalf("the member has %v, %v, want %d acknowledged writes", got, err, want)
		}
	}
}

func memberID(t *testing.T, etcd *clientv3.Client, endpoint string) uint64 {
	t.Helper()
	status, err := etcd.Status(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return status.Header.MemberId
}
