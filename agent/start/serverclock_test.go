package start

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// The responses of a real API server have its time.
func TestTheClockOfTheAPIServerIsRead(t *testing.T) {
	t.Parallel()
	var clock ServerClock
	if at, known := clock.Now(); known {
		t.Errorf("without a response it is %s", at)
	}
	config := rest.CopyConfig(env.APIServer(t))
	config.Wrap(clock.Wrap)
	client, err := coordinationclient.NewForConfig(config)
	must(t, err)
	if _, err := leases.NewStore(client.Leases("default"), "c").Member(t.Context(), "none"); !errors.Is(err, leases.ErrAbsent) {
		t.Fatal(err)
	}
	if at, known := clock.Now(); !known || time.Since(at).Abs() > maxWait {
		t.Errorf("it is %s, known %t", at, known)
	}
}

// answers is a server that says a time, or nothing.
type answers string

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a == "" {
		return nil, errors.New("connection refused")
	}
	return &http.Response{Header: http.Header{"Date": {string(a)}}}, nil
}

// The time goes on after a response, and is unknown a minute later. A response without a time, or none, changes nothing.
func TestTheClockOfTheAPIServerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock ServerClock
		said := time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)
		for _, answer := range []answers{answers(said.Format(http.TimeFormat)), "yesterday", ""} {
			_, _ = clock.Wrap(answer).RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil)) //nolint:bodyclose // it has none
		}
		time.Sleep(maxClockAge)
		if at, known := clock.Now(); !known || !at.Equal(said.Add(maxClockAge)) {
			t.Errorf("it is %s, known %t", at, known)
		}
		time.Sleep(time.Nanosecond)
		if at, known := clock.Now(); known {
			t.Errorf("after a minute it is %s", at)
		}
	})
}
