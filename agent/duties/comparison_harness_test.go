package duties

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
)

// compared is a cluster with a history, whose members have Leases.
type compared struct {
	*cluster
	names  []string
	leader string
}

// original is the value of the first key, of which flip changes one byte.
const original = "value that is damaged later"

func newCompared(t *testing.T, names []string) *compared {
	t.Helper()
	c := &compared{cluster: newClusterOf(t, names), names: names}
	c.lead()
	c.put("damaged", original)
	c.put("large", strings.Repeat("x", os.Getpagesize()))
	for i := range 10 {
		c.put(fmt.Sprint("key-", i), "value")
	}
	c.leases(c.leader, names)
	for _, name := range names {
		if name == c.leader {
			continue
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{leases.AnnotationPodUID: "pod of " + name}}}
		if _, err := c.admin.CoordinationV1().Leases(c.namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.compare = true
	return c
}

func (c *compared) lead() {
	c.t.Helper()
	c.eventually("the members follow one leader", func() (err error) { c.leader, err = c.cluster.leader(); return err })
}

func (c *compared) put(key, value string) {
	c.t.Helper()
	if _, err := c.client(c.leader).Put(c.t.Context(), key, value); err != nil {
		c.t.Fatal(err)
	}
}

// followers returns the members that do not lead, by name.
func (c *compared) followers() []string {
	return slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == c.leader })
}

// flip changes one byte of a value in the database file of a running member, as a disk would. etcd maps the file. It waits until
// etcd has nothing left to write: a page that etcd uses for something else must not be damaged. The bucket must be larger than a
// quarter of a page: bbolt keeps a smaller one within another page (bucket.go, maxInlineBucketSize), and a read transaction may
// hold a copy of it in memory that hides what changes in the file.
func (c *compared) flip(name string) { c.flipValue(name, original) }

func (c *compared) flipValue(name, value string) {
	c.t.Helper()
	path := filepath.Join(c.configs[name].Dir, "member", "snap", "db")
	var before []byte
	var at int
	since := time.Now()
	c.eventually("the value is on the disk of "+name, func() error {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(content, before) {
			before, since = content, time.Now()
		}
		if at = bytes.LastIndex(content, []byte(value)); at < 0 || time.Since(since) < quiet {
			return errors.New("etcd still writes")
		}
		return nil
	})
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	for ; at >= 0; at = bytes.LastIndex(before[:at], []byte(value)) {
		if _, err := file.WriteAt([]byte(strings.ToUpper(value[:1])), int64(at)); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// quiet is several times the interval at which etcd commits (server/storage/backend, defaultBatchInterval: 100 ms).
const quiet = 500 * time.Millisecond

func (c *compared) id(name string) uint64 { return uint64(c.members[name].Server.MemberID()) }

func (c *compared) differs(name string) leases.Difference {
	c.t.Helper()
	lease, err := c.store.Marks(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return lease.Differs
}

// marks waits until the Lease of exactly this member has the mark.
func (c *compared) marks(differing string) {
	c.t.Helper()
	began := time.Now()
	c.eventually("the differing member is marked", func() error {
		if d := c.differs(differing); !d.Of(c.id(differing)) || d.Confirmed == 0 || d.Confirmed == d.Revision || d.Hash == d.Majority {
			return fmt.Errorf("the mark of %s is %+v", differing, d)
		}
		return nil
	})
	c.t.Logf("found after %s", time.Since(began))
	c.eventually("the duty waits for the member", func() error { return c.hasDecided("differing-reported") })
	for _, name := range c.names {
		if name != differing && c.differs(name) != (leases.Difference{}) {
			c.t.Errorf("member %s is marked too", name)
		}
	}
}

func (c *compared) hasDecided(rule string) error {
	if testutil.ToFloat64(c.decisions.WithLabelValues(comparisonTable, rule)) == 0 {
		return fmt.Errorf("rule %s has not decided", rule)
	}
	return nil
}

func (c *compared) raise(name string) {
	c.t.Helper()
	_, err := c.members[c.leader].Server.Alarm(c.t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: c.id(name), Alarm: etcdserverpb.AlarmType_CORRUPT,
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// differingMember runs the part of the agent of a marked member, until it stops its etcd.
func (c *compared) differingMember(name, podUID string) <-chan error {
	return c.followed(&DifferingMember{
		Store: c.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(name), Decisions: c.decisions, Log: slog.New(slog.DiscardHandler),
		Self: func() (Cluster, bool) {
			return Cluster{ClusterID: uint64(c.members[name].Server.Cluster().ID()), MemberID: c.id(name), Member: name, PodUID: podUID}, true
		},
		Marked: func() bool { return true }, Unchecked: func() bool { return false },
	})
}

// followed runs o until it stops its etcd.
func (c *compared) followed(o *DifferingMember) <-chan error {
	stopped := make(chan error, 1)
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	go func() {
		stopped <- o.Run(ctx, func(context.Context, string) error {
			cancel()
			return nil
		})
	}()
	return stopped
}
