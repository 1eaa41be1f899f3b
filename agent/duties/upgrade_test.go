package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/member"
)

// orderUpgrade writes the request on the record as druid does, and deletes the answer to an earlier one.
func orderUpgrade(t *testing.T, api coordinationclient.LeaseInterface, order leases.UpgradeOrder) {
	t.Helper()
	value, err := order.Encode()
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:null}}}`, leases.AnnotationUpgradeOrder, value, leases.AnnotationUpgradeAnswer)
	if _, err := api.Patch(t.Context(), leases.RecordName("demo"), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func answerTo(ctx context.Context, store *leases.Store, nonce string, want leases.UpgradeVerdict) (leases.UpgradeAnswer, error) {
	record, _, err := store.Record(ctx)
	if err != nil {
		return leases.UpgradeAnswer{}, err
	}
	a := record.Upgrade.Answer
	if a.Nonce != nonce || a.Verdict != want {
		return a, fmt.Errorf("order %+v is answered %+v, want %s", record.Upgrade.Order, a, want)
	}
	return a, nil
}

func (d *drainCluster) compares(nonce string, want leases.UpgradeVerdict) (a leases.UpgradeAnswer) {
	d.t.Helper()
	d.eventually("the answer to "+nonce, func() (err error) {
		a, err = answerTo(d.t.Context(), d.store, nonce, want)
		return err
	})
	return a
}

func TestMembersAreComparedAtOneRevision(t *testing.T) {
	d := newDrainCluster(t)
	leader := d.mustLead()
	put, err := d.client(leader).Put(t.Context(), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	api := d.admin.CoordinationV1().Leases(d.namespace)
	d.startUpgrading(leader, podUID(leader))
	orderUpgrade(t, api, leases.UpgradeOrder{Nonce: "first", Version: "3.7.3"})
	if a := d.compares("first", leases.UpgradeAgree); a.Revision < put.Header.Revision || a.Members != 3 {
		t.Errorf("answered %+v after revision %d", a, put.Header.Revision)
	}

	// A stopped member is unknown, not equal.
	affected := names[0]
	if affected == leader {
		affected = names[1]
	}
	d.stop(affected)
	orderUpgrade(t, api, leases.UpgradeOrder{Nonce: "second", Version: "3.7.3"})
	d.eventually("the answer names "+affected, func() error {
		if a := d.compares("second", leases.UpgradeUnknown); !strings.Contains(a.Why, "member "+affected+" does not answer") {
			return fmt.Errorf("answered %+v", a)
		}
		return nil
	})
	// A member that returns with a value that was never written differs. The request without an answer is still
	// answered.
	falsify(t, filepath.Join(d.configs[affected].Dir, "member", "snap", "db"))
	d.start(affected)
	if a := d.compares("second", leases.UpgradeDiffer); !strings.Contains(a.Why, affected) || !strings.Contains(a.Why, "hashes differ") {
		t.Errorf("answered %+v, want the hashes", a)
	}
}

// TestChangedListIsNoOtherRequest: a list that changed meanwhile is not another.
// A learner that is added and removed while the lists are read is not a difference.
func TestChangedListIsNoOtherRequest(t *testing.T) {
	c := newCluster(t)
	leader, err := c.leader()
	if err != nil {
		t.Fatal(err)
	}
	r := &upgrade{
		round: newRound(New(Options{Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(leader), Log: slog.New(slog.DiscardHandler)}))}
	var before membership.View
	c.eventually("all members have published their client URLs", func() (err error) {
		before, err = membership.Observe(t.Context(), r.Dial, membership.Query{Endpoints: []string{r.Local}, Timeout: callTimeout})
		if err == nil && slices.ContainsFunc(before.Members, func(m membership.Member) bool { return len(m.ClientURLs) == 0 }) {
			err = fmt.Errorf("members: %+v", before.Members)
		}
		return err
	})
	listed := before
	listed.Members = append(slices.Clone(before.Members), membership.Member{ID: 1<<64 - 1, Name: "short-lived", Learner: true})
	if verdict, why := r.listsDiffer(t.Context(), before, before.Members[0], listed); verdict != leases.UpgradeUnknown {
		t.Errorf("verdict is %s: %s", verdict, why)
	}
}

// falsify changes one byte of the key space in a database that no process has open.
func falsify(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		key, value := bucket.Cursor().Last()
		if key == nil {
			return errors.New("there is no key")
		}
		changed := append([]byte{}, value...)
		changed[len(changed)-1] ^= 1
		return bucket.Put(append([]byte{}, key...), changed)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestASupersededAgentComparesNoMembers(t *testing.T) {
	d := newDrainCluster(t)
	leader := d.mustLead()
	decided := d.startUpgrading(leader, "another Pod's")
	orderUpgrade(t, d.admin.CoordinationV1().Leases(d.namespace), leases.UpgradeOrder{Nonce: "first", Version: "3.7.3"})
	d.eventually("the record is not firm", func() error { return decided("record-not-authoritative") })
	if record, _, err := d.store.Record(t.Context()); err != nil || record.Upgrade.Answer != (leases.UpgradeAnswer{}) {
		t.Errorf("answered %+v, %v", record.Upgrade.Answer, err)
	}
}

// startUpgrading runs the duties of the leader's agent, and returns a func that checks whether a rule decided.
func (d *drainCluster) startUpgrading(leader, pod string) (decided func(rule string) error) {
	server := d.members[leader].Server
	self := Cluster{ClusterID: uint64(server.Cluster().ID()), MemberID: uint64(server.MemberID()), Member: leader, PodUID: pod}
	return performUpgrades(d.t, d.store, d.endpoint(leader), func() (Cluster, bool) { return self, true }, d.peerURL)
}

// Each minor version that supports it is downgraded with its data: etcd announces the downgrade and converts its
// storage to the earlier format, and the earlier version starts on it. A canceled downgrade leaves the later version
// as it was.
func TestDowngradeAnnouncedAndCancelled(t *testing.T) {
	for i, minor := range member.Minors[1:] {
		earlier := member.Minors[i]
		t.Run(minor+" to "+earlier, func(t *testing.T) {
			m := member.Start(t, minor, member.Options{})
			put, err := m.Client.Put(t.Context(), "kept", "yes")
			if err != nil {
				t.Fatal(err)
			}
			agrees := upgradesOf(t, m)
			is := func(storage, announced string) {
				t.Helper()
				s, err := membership.ReadStatus(t.Context(), m.Client, m.Endpoint)
				if err != nil || lineOf(s.StorageVersion) != storage || lineOf(s.Downgrade) != announced {
					t.Errorf("%v: storage %q, announced %q, want %q, %q", err, s.StorageVersion, s.Downgrade, storage, announced)
				}
			}
			agrees(leases.UpgradeOrder{Nonce: "back", Version: earlier + ".99", Downgrade: earlier})
			is(earlier, earlier)
			agrees(leases.UpgradeOrder{Nonce: "taken back", Version: minor + ".99"})
			if s, err := membership.ReadStatus(t.Context(), m.Client, m.Endpoint); err != nil || s.Downgrade != "" {
				t.Errorf("%v: a downgrade to %q is announced", err, s.Downgrade)
			}
			agrees(leases.UpgradeOrder{Nonce: "back again", Version: earlier + ".99", Downgrade: earlier})
			is(earlier, earlier)
			m.Stop(t)
			back := member.Start(t, earlier, member.Options{Dir: m.Dir, PeerURL: m.PeerURL})
			got, err := back.Client.Get(t.Context(), "kept", clientv3.WithSerializable())
			if err != nil || len(got.Kvs) != 1 || got.Kvs[0].ModRevision != put.Header.Revision {
				t.Errorf("etcd %s has %+v, %v", earlier, got, err)
			}
		})
	}
}
