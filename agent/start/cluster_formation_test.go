package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// TestClaimedAttemptStopsAndQuarantines: an attempt that another claimed is stopped and quarantined.
func TestClaimedAttemptStopsAndQuarantines(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a")
	seed := c.members["c-a"]
	b := seed.boot()
	order := seed.next(b)
	record, version := c.record()
	lost := record.Lineage
	record.Nonce, record.Executor = "another", "pod-other"
	record.Lineage = leases.LineageOf(record.Epoch, record.Nonce)
	if _, err := c.store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Fatal(err)
	}
	etcd := seed.etcdAlone(order)
	stopped := false
	err := b.FinishStart(t.Context(), func(context.Context, string) error {
		stopped = true
		return etcd()
	})
	if !errors.Is(err, ErrAttemptLost) || !stopped {
		t.Fatalf("finish: %v, stopped %t", err, stopped)
	}
	if identityFile, _ := b.Identity(); identityFile.Formed || identityFile.Lineage != lost {
		t.Errorf("the identity file says %+v", identityFile)
	}
	// The record still makes this member the seed: it claims an attempt of its own, under a token of its own.
	seed.start()
	c.voters("c-a")
	c.eventually("the cluster is recorded", func() error {
		if record, _ := c.record(); record.Phase != leases.PhaseFormed || record.Lineage == lost || record.Nonce == "another" {
			return fmt.Errorf("the record says %+v", record)
		}
		return nil
	})
}

func TestASupersededPodRecordsNoCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a")
	seed := c.members["c-a"]
	b := seed.boot()
	etcd := seed.etcdAlone(seed.next(b))
	defer func() { _ = etcd() }()
	c.eventually("the seed's etcd serves", func() error { _, err := c.view("c-a"); return err })
	names := func(pod string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, leases.AnnotationPodUID, pod)
		if _, err := c.leases.Patch(t.Context(), "c-a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	names("successor")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := b.FinishStart(ctx, func(context.Context, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if record, _ := c.record(); record.Phase != leases.PhaseForming {
		t.Errorf("a Pod that another one follows recorded %+v", record)
	}
	names("pod-c-a")
	if err := b.FinishStart(t.Context(), func(context.Context, string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if record, _ := c.record(); record.Phase != leases.PhaseFormed {
		t.Errorf("the Pod that the Lease names recorded %+v", record)
	}
}

// busyLearner is a listed learner that returns to its peers the list it was started with, as a learner does while it
// receives the database. etcd queries its address first.
type busyLearner struct {
	asked atomic.Int32
	list  atomic.Pointer[membership.View]
}

func (l *busyLearner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/members" {
		http.NotFound(w, r)
		return
	}
	l.asked.Add(1)
	view := l.list.Load()
	var members []map[string]any
	for _, m := range view.Members {
		members = append(members, map[string]any{"id": m.ID, "name": m.Name, "peerURLs": m.PeerURLs, "isLearner": m.Learner})
	}
	w.Header().Set("X-Etcd-Cluster-ID", strconv.FormatUint(view.ClusterID, 16))
	_ = json.NewEncoder(w).Encode(members)
}

func (c *cluster) addBusyLearner(name string) *busyLearner {
	c.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(c.t.Context(), "tcp", c.net+"0:0")
	if err != nil {
		c.t.Fatal(err)
	}
	l := &busyLearner{}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: l}}
	server.Start()
	c.t.Cleanup(server.Close)
	client := c.client(name)
	defer func() { _ = client.Close() }()
	if _, err := membership.AddLearner(c.t.Context(), client, server.URL); err != nil {
		c.t.Fatal(err)
	}
	l.inform(c, name)
	return l
}

// inform makes the learner return the current list.
func (l *busyLearner) inform(c *cluster, name string) {
	c.eventually("read the list", func() error {
		view, err := c.view(name)
		l.list.Store(&view)
		return err
	})
}

func TestJoinerWaitsForTheListOfTheFirstPeer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a", "c-b")
	c.members["c-a"].start()
	c.eventually("the seed forms", func() error {
		record, _, err := c.store.Record(t.Context())
		if err == nil && record.Phase != leases.PhaseFormed {
			err = errNotYet
		}
		return err
	})
	learner := c.addBusyLearner("c-a")
	joiner := c.members["c-b"]
	joiner.start()
	c.eventually("the learner is asked more often than a joiner may start", func() error {
		if learner.asked.Load() <= 3*maxJoinAttempts {
			return errNotYet
		}
		return nil
	})
	learner.inform(c, "c-a")
	c.eventually("the joiner is a started learner", func() error {
		view, err := c.view("c-a")
		if m, ok := view.Find("c-b", ""); err == nil && (!ok || !m.Started()) {
			err = errNotYet
		}
		return err
	})
	if deeds := joiner.deeds(); slices.Contains(deeds, "data-lost") {
		t.Errorf("it replaced itself: %v", deeds)
	}
}

func TestTheSlotOfALaterPodIsNotGivenBack(t *testing.T) {
	c := newCluster(t, "3.7.3", "c-a")
	record, version := c.record()
	record.Phase, record.ClusterID, record.FormedEpoch = leases.PhaseFormed, 1, 1
	record.Replacing = &leases.Replacing{Member: "c-a", PodUID: "pod-later", MemberID: leases.FormatID(2)}
	if _, err := c.store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Fatal(err)
	}
	m := c.members["c-a"]
	later := m.cfg.PodUID
	m.cfg.PodUID = "pod-former"
	s := &finisher{b: m.boot(), log: slog.New(slog.DiscardHandler)}
	if done, err := s.slotFree(t.Context()); err != nil || !done {
		t.Errorf("done %t, %v", done, err)
	}
	if now, _ := c.record(); now.Replacing == nil {
		t.Error("the agent of a former Pod gave back the slot of the Pod that came after it")
	}
	m.cfg.PodUID = later
	s = &finisher{b: m.boot(), log: slog.New(slog.DiscardHandler)}
	if done, err := s.slotFree(t.Context()); err != nil || !done {
		t.Errorf("done %t, %v", done, err)
	}
	if now, _ := c.record(); now.Replacing != nil {
		t.Error("the agent of the Pod that the Lease names did not give back its slot")
	}
}

// druid counts a member as lost whose Lease says that its disk is empty. A learner does not vote before its Lease shows that it runs.
func TestALearnerVotesAfterItsLeaseShowsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a", "c-b")
	c.members["c-b"].silent.Store(true)
	for _, m := range c.members {
		m.start()
	}
	c.eventually("c-b waits for its Lease", func() error {
		if log := c.members["c-b"].log(); !strings.Contains(log, "rule=not-reported") {
			return errors.New("it does not wait")
		}
		return nil
	})
	if view, err := c.view("c-a"); err != nil || len(view.Voters()) != 1 {
		t.Errorf("c-a sees %+v, err %v", view.Members, err)
	}
	c.members["c-b"].silent.Store(false)
	c.voters("c-a", "c-b")
}
