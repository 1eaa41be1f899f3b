package harness

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSampleIsJudged(t *testing.T) {
	voter := func(id uint64) listed { return listed{id: id, name: "v"} }
	learner := func(id uint64) listed { return listed{id: id, learner: true} }
	up := func(ids ...uint64) map[uint64]bool {
		healthy := map[uint64]bool{}
		for _, id := range ids {
			healthy[id] = true
		}
		return healthy
	}
	for name, test := range map[string]struct {
		members  []listed
		healthy  map[uint64]bool
		limit    int
		spare    int
		learners int
		want     string
	}{
		"all are well":                           {[]listed{voter(1), voter(2), voter(3)}, up(1, 2, 3), 16, 1, 0, ""},
		"one of three is down":                   {[]listed{voter(1), voter(2), voter(3)}, up(1, 2), 16, 0, 0, ""},
		"two of three are down":                  {[]listed{voter(1), voter(2), voter(3)}, up(1), 16, -1, 0, "1 of 3 voters"},
		"one of two is down":                     {[]listed{voter(1), voter(2)}, up(1), 16, -1, 0, "1 of 2 voters"},
		"an unstarted voter counts as down":      {[]listed{voter(1), {id: 2}}, up(1), 16, -1, 0, "1 of 2 voters"},
		"a learner is no voter":                  {[]listed{voter(1), learner(2)}, up(1, 2), 16, 0, 1, ""},
		"a learner that is down is no loss":      {[]listed{voter(1), learner(2)}, up(1), 16, 0, 1, ""},
		"a healthy unknown member does not help": {[]listed{voter(1), voter(2), voter(3)}, up(1, 9), 16, -1, 0, "1 of 3 voters"},
		"as many learners as are allowed":        {[]listed{voter(1), learner(2)}, up(1), 1, 0, 1, ""},
		"a learner more than may be at once":     {[]listed{voter(1), learner(2), learner(3)}, up(1), 1, 0, 2, "at most 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(test.members, test.healthy, test.limit)
			if got.spare != test.spare || got.learners != test.learners {
				t.Errorf("got %d to spare and %d learners, want %d and %d", got.spare, got.learners, test.spare, test.learners)
			}
			if said := got.err != nil; said != (test.want != "") || said && !strings.Contains(got.err.Error(), test.want) {
				t.Errorf("got %v, want %q", got.err, test.want)
			}
		})
	}
}

func TestALookReportsOnlyWhatItSaw(t *testing.T) {
	judged := time.Now()
	before, after := judged.Add(-time.Second), judged.Add(time.Second)
	for name, test := range map[string]struct {
		look        look
		well, known bool
	}{
		"there was none":                      {look{}, false, false},
		"it began before":                     {look{begun: before}, false, false},
		"it answered":                         {look{begun: after}, true, true},
		"it refused":                          {look{begun: after, err: status.Error(codes.Unavailable, "connection refused")}, false, true},
		"it let the caller wait":              {look{begun: after, err: status.Error(codes.DeadlineExceeded, "late")}, false, false},
		"it was not even dialled in time":     {look{begun: after, err: context.DeadlineExceeded}, false, false},
		"it had no leader when it was asked":  {look{begun: after, err: rpctypes.ErrNoLeader}, false, false},
		"the leader changed meanwhile":        {look{begun: after, err: rpctypes.ErrGRPCLeaderChanged}, false, false},
		"it does not know yet that it votes":  {look{begun: after, err: rpctypes.ErrGRPCNotSupportedForLearner}, false, false},
		"it seemed to be down, before it was": {look{begun: before, err: status.Error(codes.Unavailable, "connection refused")}, false, false},
		"its TLS handshake ran out of time": {look{begun: after, err: status.Error(codes.Unavailable, `connection error: desc = "transport: `+lateHandshake+`"`)},
			false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if well, known := test.look.stateSince(judged); well != test.well || known != test.known {
				t.Errorf("got well=%t known=%t, want %t and %t", well, known, test.well, test.known)
			}
		})
	}
}

func TestOnlyVotersMakeListsDiffer(t *testing.T) {
	a := []listed{{id: 1}, {id: 2}, {id: 3, learner: true}}
	if !sameVoters(a, []listed{{id: 2}, {id: 1}}) {
		t.Error("lists with the same voters in another order, and without a learner, differ")
	}
	if sameVoters(a, []listed{{id: 1}, {id: 2}, {id: 3}}) {
		t.Error("a promotion is not seen")
	}
}

func TestAnotherRaftGroupIsReported(t *testing.T) {
	const group, other, third = 7, 8, 9
	refused := look{err: status.Error(codes.Unavailable, "connection refused")}
	for name, test := range map[string]struct {
		looks []look
		want  []bool // which are reported
	}{
		"a member of the group":         {[]look{{group: group}, {group: group}}, []bool{false, false}},
		"a member of another one, once": {[]look{{group: other}, {group: other}}, []bool{true, false}},
		"it is still of that one later": {[]look{{group: other}, refused, {group: other}}, []bool{true, false, false}},
		"it joins another one":          {[]look{{group: group}, refused, {group: other}}, []bool{false, false, true}},
		"it joins a third one":          {[]look{{group: other}, {group: third}}, []bool{true, true}},
		"it comes back":                 {[]look{{group: other}, {group: group}, {group: other}}, []bool{true, false, true}},
		"a member that does not answer": {[]look{refused, refused}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var m watched
			for i, l := range test.looks {
				if err := m.looked(l, "m", group); (err != nil) != test.want[i] {
					t.Errorf("look %d: %v, want an error: %t", i, err, test.want[i])
				}
			}
		})
	}
}

func TestRateOfLooksIsThatOfTheTimeWatched(t *testing.T) {
	began := time.Now()
	m := watched{since: began}
	for range 30 {
		_ = m.looked(look{group: 7}, "m", 7)
	}
	if got := m.perSecond(began.Add(2 * time.Second)); got != 15 {
		t.Errorf("30 looks in 2 s are %v each second", got)
	}
}
