package leases

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRemovalRequestIsReadAsItWasWritten(t *testing.T) {
	for name, r := range map[string]RemovalRequest{
		"no mark":   {},
		"requested": {State: RemovalRequested, Mark: "x7k2p", At: "2026-11-21T10:00:00Z"},
		"removing": {State: RemovalBegun, Mark: "x7k2p", At: "2026-11-21T10:00:00Z", By: "pod", MemberID: "8e9e05c52164694d",
			ClusterID: "cdf818194e3a8c32"},
		"removing what never joined": {State: RemovalBegun, Mark: "x7k2p", By: "pod", ClusterID: "c"},
		"done":                       {State: RemovalDone, Mark: "x7k2p", By: "pod", MemberID: "8", ClusterID: "c", RaftTerm: 3, RaftIndex: 42},
		"done for what never joined": {State: RemovalDone, Mark: "x7k2p", By: "pod", ClusterID: "c", RaftTerm: 3, RaftIndex: 42},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if got := ParseRemovalRequest(text); got != r {
				t.Errorf("got %+v, want %+v", got, r)
			}
		})
	}
}

func TestAMarkThatLacksSomethingOrdersNothing(t *testing.T) {
	for name, text := range map[string]string{
		"a bare word":                "requested",
		"half of it":                 `{"state":"requested","mark"`,
		"no mark":                    `{"state":"requested"}`,
		"no state":                   `{"mark":"x"}`,
		"a state of another version": `{"state":"evicted","mark":"x"}`,
		"the word for unreadable":    `{"state":"unreadable","mark":"x"}`,
		"requested and claimed":      `{"state":"requested","mark":"x","by":"pod"}`,
		"claimed without a Pod":      `{"state":"removing","mark":"x","clusterID":"c"}`,
		"claimed in no cluster":      `{"state":"removing","mark":"x","by":"pod"}`,
		"a member ID that is none":   `{"state":"removing","mark":"x","by":"pod","clusterID":"c","memberID":"z"}`,
		"done without a position":    `{"state":"done","mark":"x","by":"pod","clusterID":"c","memberID":"8"}`,
		"done without an index":      `{"state":"done","mark":"x","by":"pod","clusterID":"c","memberID":"8","raftTerm":3}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got := ParseRemovalRequest(text); got != (RemovalRequest{State: RemovalUnreadable}) {
				t.Errorf("got %+v, want unreadable", got)
			}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationRemoval: text, AnnotationPodUID: "pod"}}}
			if m, err := DecodeMember(lease); err != nil || m.PodUID != "pod" {
				t.Errorf("%+v, %v: want the rest of the Lease to count", m, err)
			}
		})
	}
	for _, r := range []RemovalRequest{{State: RemovalUnreadable, Mark: "x"}, {State: RemovalRequested}, {Mark: "x"}, {State: RemovalDone, Mark: "x"}} {
		if text, err := r.Encode(); err == nil {
			t.Errorf("%+v was written: %s", r, text)
		}
	}
}

func TestTheSlotNamesMemberAndMark(t *testing.T) {
	mark := RemovalRequest{State: RemovalRequested, Mark: "x"}
	for name, tc := range map[string]struct {
		slot *PendingRemoval
		want bool
	}{
		"both agree":      {&PendingRemoval{Member: "a", Mark: "x"}, true},
		"another member":  {&PendingRemoval{Member: "b", Mark: "x"}, false},
		"another mark":    {&PendingRemoval{Member: "a", Mark: "y"}, false},
		"no mark at all":  {&PendingRemoval{Member: "a"}, false},
		"the slot's free": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.slot.Orders("a", mark); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
	if (&PendingRemoval{Member: "a"}).Orders("a", RemovalRequest{}) {
		t.Error("no mark agrees with no mark, want no order")
	}
}

func FuzzRemovalRequest(f *testing.F) {
	f.Add(`{"state":"done","mark":"x","by":"pod","clusterID":"c","memberID":"8","raftTerm":3,"raftIndex":4}`)
	f.Add(`{"state":"removing","mark":"x","by":"own","clusterID":"c","BY":"leader","State":"done","raftTerm":3,"raftIndex":4}`)
	f.Add(`{"state":"removing","mark":"x","by":"own","clusterID":"c","by":"leader","state":"done","raftTerm":3,"raftIndex":4}`)
	f.Add(`{"state":"removing","mark":"x","by":"own","clusterID":"c","later":{"by":"leader"}}`)
	f.Add(`{"state":"removing","mark":"x","\u0062y":"own","clusterID":"c"}`)
	f.Add(` {"state":"requested","mark":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := ParseRemovalRequest(text)
		if r.State == RemovalUnreadable {
			return
		}
		if again, err := r.Encode(); err != nil || again != text {
			t.Errorf("%q is read as %+v, which is written as %q: %v", text, r, again, err)
		}
	})
}
