package bootstrap

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// busyLearner is a listed learner that answers its peers with the list it was started with, for as long as it is sent the
// database. Its address is the first that etcd asks.
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

// report lets the learner answer with the list as it is now.
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
