package membership

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/machine"
)

// maxWait is the timeout for operations that take milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// single starts one real etcd and returns its client endpoint and peer URL.
func single(t *testing.T, token string) (endpoint, peerURL string) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel = "m", t.TempDir(), "panic"
	client, peer := url.URL{Scheme: "http", Host: machine.Address(t)}, url.URL{Scheme: "http", Host: machine.Address(t)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster, cfg.InitialClusterToken = "m="+peer.String(), token
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(maxWait):
		t.Fatalf("etcd is not ready after %s", maxWait)
	}
	return client.String(), peer.String()
}

func dialTest(ctx context.Context, endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Context: ctx, Endpoints: endpoints})
}

// borrowed lends clients, and records with what error each was given back.
type borrowed struct {
	mu   sync.Mutex
	errs map[string][]error
}

func (b *borrowed) dial(ctx context.Context, endpoints ...string) (*clientv3.Client, func(error), error) {
	client, err := dialTest(ctx, endpoints...)
	return client, func(err error) {
		_ = client.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errs[endpoints[0]] = append(b.errs[endpoints[0]], err)
	}, err
}

func (b *borrowed) take(endpoint string) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := b.errs[endpoint]
	delete(b.errs, endpoint)
	return errs
}

// TestOtherMembersAnswerReported: an answer of another member is reported about the client.
// A client that reached another member must not be lent again: its address can belong to the right member later.
func TestOtherMembersAnswerReported(t *testing.T) {
	endpoint, peerURL := single(t, "one")
	memberID, clusterID, err := ExpectedIDs("m", peerURL, "one")
	if err != nil {
		t.Fatal(err)
	}
	lent := &borrowed{errs: map[string][]error{}}
	for name, test := range map[string]struct {
		ask  func() error
		want error
	}{
		"the member": {func() error {
			_, err := StatusOf(t.Context(), lent.dial, clusterID, Member{ID: memberID, ClientURLs: []string{endpoint}})
			return err
		}, nil},
		"another member": {func() error {
			_, err := StatusOf(t.Context(), lent.dial, clusterID, Member{ID: memberID + 1, ClientURLs: []string{endpoint}})
			return err
		}, ErrOtherMember},
		"a member of another cluster": {func() error {
			_, err := StatusOf(t.Context(), lent.dial, clusterID+1, Member{ID: memberID, ClientURLs: []string{endpoint}})
			return err
		}, ErrOtherMember},
		"the cluster": {func() error {
			_, err := Observe(t.Context(), lent.dial, Query{Endpoints: []string{endpoint}, ClusterID: clusterID, Timeout: maxWait})
			return err
		}, nil},
		"another cluster": {func() error {
			_, err := Observe(t.Context(), lent.dial, Query{Endpoints: []string{endpoint}, ClusterID: clusterID + 1, Timeout: maxWait})
			return err
		}, ErrOtherCluster},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.ask(); !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if errs := lent.take(endpoint); len(errs) != 1 || !errors.Is(errs[0], test.want) {
				t.Errorf("the client was given back with %v, want once with %v", errs, test.want)
			}
		})
	}
}

func TestObserveBelievesOneClusterAlone(t *testing.T) {
	endpoint, peerURL := single(t, "one")
	other, _ := single(t, "two")
	memberID, clusterID, err := ExpectedIDs("m", peerURL, "one")
	if err != nil {
		t.Fatal(err)
	}
	lent := &borrowed{errs: map[string][]error{}}
	query := Query{Endpoints: []string{other, "http://127.0.0.1:1", endpoint}, ClusterID: clusterID, Timeout: maxWait}
	view, err := Observe(t.Context(), lent.dial, query)
	if err != nil {
		t.Fatal(err)
	}
	if view.ClusterID != clusterID || view.Endpoint != endpoint || len(view.Members) != 1 || view.Members[0].ID != memberID {
		t.Errorf("it saw %+v, want member %x of cluster %x at %s", view, memberID, clusterID, endpoint)
	}
	query.Endpoints = []string{other}
	if _, err := Observe(t.Context(), lent.dial, query); !errors.Is(err, ErrNoQuorum) || !errors.Is(err, ErrOtherCluster) {
		t.Errorf("without an answer of ours: %v", err)
	}
	query.Endpoints, query.Timeout = []string{"http://127.0.0.1:1"}, time.Second
	if _, err := Observe(t.Context(), lent.dial, query); !errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrOtherCluster) {
		t.Errorf("without any answer: %v", err)
	}
}

func TestRefusedChangesReportWhy(t *testing.T) {
	endpoint, peerURL := single(t, "one")
	client, err := dialTest(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	status, err := ReadStatus(t.Context(), client, endpoint)
	if err != nil || status.Role != RoleLeader || !status.Healthy() {
		t.Fatalf("status %+v, err %v", status, err)
	}
	if err := Linearizable(t.Context(), client); err != nil {
		t.Error(err)
	}
	if alarms, err := Alarms(t.Context(), client); err != nil || len(alarms) != 0 {
		t.Errorf("alarms %v, err %v", alarms, err)
	}
	if _, err := AddLearner(t.Context(), client, peerURL); !errors.Is(err, ErrExists) {
		t.Errorf("add of a listed peer URL: %v", err)
	}
	learner, err := AddLearner(t.Context(), client, "http://127.0.0.1:2")
	if err != nil || !learner.Learner || learner.Started() {
		t.Fatalf("add of a learner: %+v, err %v", learner, err)
	}
	if _, err := AddLearner(t.Context(), client, "http://127.0.0.1:3"); !errors.Is(err, ErrTooManyLearners) {
		t.Errorf("add beyond the limit: %v", err)
	}
	if err := Promote(t.Context(), client, learner.ID); !errors.Is(err, ErrLearnerNotReady) {
		t.Errorf("promote of a learner that never started: %v", err)
	}
	if err := Promote(t.Context(), client, status.MemberID); !errors.Is(err, ErrNotLearner) {
		t.Errorf("promote of a voter: %v", err)
	}
	if err := MoveLeader(t.Context(), client, learner.ID); err == nil {
		t.Error("leadership moved to a learner")
	}
	if err := Remove(t.Context(), client, learner.ID); err != nil {
		t.Error(err)
	}
	if err := Remove(t.Context(), client, learner.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("remove of what is gone: %v", err)
	}
}

func TestAlarmsAndRevisionsAreChangedOneByOne(t *testing.T) {
	endpoint, _ := single(t, "one")
	client, err := dialTest(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	status, err := ReadStatus(t.Context(), client, endpoint)
	if err != nil || status.Quota <= 0 {
		t.Fatalf("status %+v, err %v; want the quota too", status, err)
	}
	var revision int64
	for range 3 {
		put, err := client.Put(t.Context(), "a", "")
		if err != nil {
			t.Fatal(err)
		}
		revision = put.Header.Revision
	}
	for _, want := range []error{nil, ErrCompacted} {
		before, err := CompactedAt(t.Context(), client, revision)
		if err != nil || before != rules.AnswerOf(want != nil) {
			t.Errorf("compacted at %d: %s, %v", revision, before, err)
		}
		if err := Compact(t.Context(), client, revision); !errors.Is(err, want) {
			t.Errorf("compact at %d: %v, want %v", revision, err, want)
		}
	}
	if _, err := CompactedAt(t.Context(), client, revision+9); err == nil {
		t.Error("it is known what a revision of the future is")
	}
	for _, alarm := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
		_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: status.MemberID, Alarm: alarm,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Disarm(t.Context(), client, Alarm{MemberID: status.MemberID, Type: AlarmNoSpace}); err != nil {
		t.Fatal(err)
	}
	alarms, err := Alarms(t.Context(), client)
	if err != nil || len(alarms) != 1 || alarms[0].Type != AlarmCorrupt {
		t.Errorf("alarms %+v, %v; want CORRUPT alone", alarms, err)
	}
	status, err = ReadStatus(t.Context(), client, endpoint)
	if err != nil || !status.Corrupt() || status.Serves() {
		t.Errorf("status %+v, %v", status, err)
	}
}
