// Package embedded runs real etcd members in the process of a test, for tests of what agents do with etcd. Tests of
// several minors run etcd as a process instead, with test/member. It is imported by tests alone.
package embedded

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-druid/druid/test/machine"
)

// MaxWait is the timeout for operations that take seconds on an idle machine.
const MaxWait = 3 * time.Minute

// pollInterval is the pause between two tries of a condition.
const pollInterval = 50 * time.Millisecond

// Config returns the configuration of a member that has its data in dir and logs nothing. Its addresses are used by no
// other test. The member is alone in its cluster until Form says otherwise.
func Config(tb testing.TB, name, dir string) *embed.Config {
	tb.Helper()
	e := embed.NewConfig()
	e.Name, e.Dir, e.LogLevel, e.LogOutputs = name, dir, "fatal", []string{"/dev/null"}
	e.ListenPeerUrls, e.ListenClientUrls = []url.URL{{Scheme: "http", Host: machine.Address(tb)}}, []url.URL{{Scheme: "http", Host: machine.Address(tb)}}
	e.AdvertisePeerUrls, e.AdvertiseClientUrls = e.ListenPeerUrls, e.ListenClientUrls
	Form(e)
	return e
}

// Form makes the members the initial members of one cluster. It starts none of them.
func Form(members ...*embed.Config) {
	initial := make([]string, len(members))
	for i, e := range members {
		initial[i] = e.Name + "=" + e.ListenPeerUrls[0].String()
	}
	for _, e := range members {
		e.InitialCluster = strings.Join(initial, ",")
	}
}

// Start starts a member. The caller closes it. The other members of its cluster need not run yet.
func Start(tb testing.TB, e *embed.Config) *embed.Etcd {
	tb.Helper()
	etcd, err := embed.StartEtcd(e)
	if err != nil {
		tb.Fatalf("start etcd %s: %v", e.Name, err)
	}
	return etcd
}

// Eventually tries the condition until it returns no error. It fails the test with the last error after MaxWait.
func Eventually(tb testing.TB, what string, condition func() error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), MaxWait)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}
