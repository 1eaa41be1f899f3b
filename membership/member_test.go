package membership

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/rules"
)

// TestMemberFoundByPeerURLThenName: a member is found by its peer URL before its name.
func TestMemberFoundByPeerURLThenName(t *testing.T) {
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
		"by its URL under the other scheme":     {"c-d", "https://c-a:2380", 2, true},
		"not under another port":                {"c-d", "http://c-a:2379", 0, false},
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

// TestUnstartedLearnerEitherScheme: an unstarted learner is desired under either scheme.
// A learner that was added under one scheme and never started is still the member that the record lists, when its Pod has the
// other scheme. Otherwise it would be superfluous and removed.
func TestUnstartedLearnerEitherScheme(t *testing.T) {
	https := func(name string) string { return "https://" + name + ":2380" }
	learner := Member{ID: 7, PeerURLs: []string{"http://c-a:2380"}, Learner: true}
	if got := Desired(learner, []string{"c-a"}, https); got != rules.Yes {
		t.Errorf("it is desired: %v", got)
	}
	if got := Desired(learner, []string{"c-b"}, https); got != rules.No {
		t.Errorf("it is desired as another member: %v", got)
	}
	if m, entry := EntryOf(View{Members: []Member{learner}}, "c-a", https("c-a"), 0); m.ID != 7 || entry != LearnerEntry {
		t.Errorf("it has entry %v of member %d", entry, m.ID)
	}
}

func TestWithoutMembersToAskNothingIsKnown(t *testing.T) {
	dial := func(context.Context, ...string) (*clientv3.Client, func(error), error) {
		return nil, nil, errors.New("no member is to be dialled")
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
