package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/leases"
)

// The members compare their data each ten seconds, see quick.
var differences = map[string]scenario{
	"a member whose data differs": {members: 3, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.leader()
		p.killAgent()
		c.flip(c.pods[c.other(p)])
		return p
	}, aftermath: func(c *cluster, p *pod) { c.replaced(c.other(p)) }},
	"a marked member": {members: 3, newborn: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.follower()
		p.killAgent()
		c.flip(p)
		return p
	}, aftermath: func(c *cluster, p *pod) { c.replaced(p.name) }},
	"members without a majority": {members: 2, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.leader()
		p.killAgent()
		c.flip(c.pods[c.other(p)])
		return p
	}, aftermath: func(c *cluster, _ *pod) {
		c.eventually("the record says that the members are undecided", func() error {
			record, _, err := c.store.Record(c.t.Context())
			if err == nil && record.Undecided == (leases.Undecided{}) {
				err = errors.New("it does not")
			}
			return err
		})
	}},
	"the alarm CORRUPT": {members: 3, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.leader()
		p.killAgent()
		c.eventually("raise the alarm", func() error {
			id, err := c.memberID(p.name, c.other(p))
			if err != nil {
				return err
			}
			return c.etcd(p.name, func(ctx context.Context, client *clientv3.Client) error {
				_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
					Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: etcdserverpb.AlarmType_CORRUPT,
				})
				return err
			})
		})
		return p
	}, aftermath: func(c *cluster, _ *pod) { c.put("after", "CORRUPT") }},
}

// original is a value of which flip changes one byte on the disk of a member.
const original = "value that is damaged on one disk"

// large is too large for an inline bucket. bbolt keeps a bucket of at most a quarter of a page within another page (bucket.go,
// maxInlineBucketSize), and a read transaction may hold a copy of it in memory. Such a copy hides what changes in the file.
var large = strings.Repeat("x", os.Getpagesize())

// flip changes one byte of a value in the database of a member whose etcd runs and has nothing to write. etcd maps the file. A commit
// that was prepared before can write the page again as it was, so flip repeats the change until etcd reads it.
func (c *cluster) flip(p *pod) {
	c.t.Helper()
	c.put("damaged", original)
	c.put("large", large)
	for i := range 5 {
		c.put(fmt.Sprint("intact-", i), "value")
	}
	path := volume.DataPath(p.config.VolumePath) + "/member/snap/db"
	var before []byte
	since := time.Now()
	c.eventually("etcd reads a changed byte on the disk of "+p.name, func() error {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(content, before) {
			before, since = content, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.New("etcd still writes")
		}
		if err := damage(path, content); err != nil {
			return err
		}
		return c.differs(p.name, c.other(p))
	})
}

// damage changes the first byte of the original value wherever it is in a file with this content.
func damage(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for at := bytes.LastIndex(content, []byte(original)); at >= 0 && err == nil; at = bytes.LastIndex(content[:at], []byte(original)) {
		_, err = file.WriteAt([]byte("V"), int64(at))
	}
	return errors.Join(err, file.Sync(), file.Close())
}

// differs returns an error unless two members have different data at the revision of the first one.
func (c *cluster) differs(name, other string) error {
	var revision int64
	hashes := map[uint32]bool{}
	for _, member := range []string{name, other} {
		if err := c.etcd(member, func(ctx context.Context, client *clientv3.Client) error {
			answer, err := client.HashKV(ctx, c.endpoint(member), revision)
			if err != nil {
				return err
			}
			if revision == 0 {
				revision = answer.Header.Revision
			}
			hashes[answer.Hash] = true
			return nil
		}); err != nil {
			return err
		}
	}
	if len(hashes) == 1 {
		return fmt.Errorf("%s and %s have equal data at revision %d", name, other, revision)
	}
	return nil
}

// replaced waits until the member has the data of the others under another ID, and its former data is kept.
func (c *cluster) replaced(name string) {
	c.t.Helper()
	c.eventually("the member is replaced", func() error {
		entries, err := os.ReadDir(c.pods[name].config.VolumePath)
		if err != nil {
			return err
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if !strings.Contains(strings.Join(names, " "), "-differs") {
			return fmt.Errorf("its data is not kept: %v", names)
		}
		lease, err := c.store.Member(c.t.Context(), name)
		if err == nil && lease.DataDiffers() {
			err = fmt.Errorf("the Lease says %+v", lease.Differs)
		}
		return err
	})
	c.heals()
	c.keeps("damaged", original)
}
