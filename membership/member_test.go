package membership

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestAMemberIsFoundByItsPeerURLBeforeItsName(t *testing.T) {
	namesake := Member{ID: 1, Name: "c-a", PeerURLs: []string{"http://stray:2380"}}
	unstarted := Member{ID: 2, PeerURLs: []string{"http://c-a:2380"}}
	moved := Member{ID: 3, Name: "c-b", PeerURLs: []string{"http://other:2380"}}
	view := View{Members: []Member{namesake, unstarted, moved}}
	tests := map[string]struct {
		name, url string
		want      uint64
		found     bool
	}{
		"by its URL, with a namesake before it": {"c-a", "http://c-a:2380", 2, true},
		"by its name, under another URL":        {"c-b", "http://c-b:2380", 3, true},
		"not at all":                            {"c-c", "http://c-c:2380", 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, found := view.Find(tc.name, tc.url); got.ID != tc.want || found != tc.found {
				t.Errorf("got member %d, %t; want %d, %t", got.ID, found, tc.want, tc.found)
			}
		})
	}
}

func TestWithoutMembersToAskNothingIsKnown(t *testing.T) {
	dial := func(context.Context, ...string) (*clientv3.Client, error) {
		return nil, errors.New("no one is to be dialled")
	}
	_, err := Observe(t.Context(), dial, Query{})
	if !errors.Is(err, ErrNoQuorum) || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v, want %v in words for an operator", err, ErrNoQuorum)
	}
}

func TestALogThatGotLongerIsNoFailure(t *testing.T) {
	if err := LengthenLog(t.Context(), nil, 0); err != nil {
		t.Error(err)
	}
}
