package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestGuardsAreSafeForAllFacts(t *testing.T) {
	checkTable(t, guards, "guards", "An EtcdCluster in a group next to others: druid/plan.guards", func(f guardFacts, d rules.Decision[Guard]) string {
		guard := d.Verdict
		deleted := f.deletion != deletionNone
		in := f.hosts&(hostsThere|hostsUnknown|hostsBegun) != 0
		switch {
		case guard == GuardHold && (deleted || f.held == rules.Yes || f.joins == rules.No):
			return "a finalizer is taken that is there, is not wanted, or that Kubernetes refuses"
		case guard == GuardRelease && f.held == rules.No:
			return "what is not there is given back"
		// No one joins without it.
		case f.joins == rules.Yes && !deleted && f.held == rules.No && in && guard != GuardHold:
			return "members may join that nothing holds"
		case f.joins == rules.Yes && !deleted && f.held == rules.No && f.hosts == hostsNeverFormed && guard != GuardHold:
			return "the first one joins before the finalizer"
		// No one's quorum is taken.
		case f.joins == rules.Yes && in && f.going == rules.No && f.deletion&(deletionOrphan) == 0 && guard == GuardRelease:
			return "voters that are listed are let go"
		// Nothing is held permanently: of what is deleted it goes, or its members do.
		case deleted && f.held == rules.Yes && guard&(GuardRelease|GuardLeave|GuardWait) == 0:
			return "a deletion is held, and nothing is done"
		case deleted && f.held == rules.Yes && f.going == rules.Yes && guard != GuardRelease:
			return "a namespace that goes is held up"
		case guard == GuardLeave && (f.deletion != deletionPlain || f.joins == rules.No || !in):
			return "members leave whom no one sends, or whom no one would miss"
		case guard == GuardWait && f.deletion != deletionForeground:
			return "Kubernetes deletes nothing that could be waited for"
		// An ordinary deletion is not held up.
		case !deleted && f.held == rules.Yes && f.hosts == hostsNone && guard != GuardRelease:
			return "it is held although no one else is there"
		}
		return ""
	})
}

// parting is a cluster in a group next to others that was deleted.
func parting(change ...func(*Observed)) Observed {
	return whole(append([]func(*Observed){sharing("etcd-0", "etcd-1", "etcd-2"), func(o *Observed) {
		o.Record.Leaving, o.BudgetMin = true, 3
	}}, change...)...)
}

func deletedBesideOthers() Desired {
	return Desired{Replicas: 3, ClusterID: 9, Joins: true, Held: true, Deleted: true}
}

func taken(name string) func(*Observed) {
	return func(o *Observed) { o.Record.Retiring = &leases.Retiring{Member: name, Mark: "m"} }
}

func left(names ...string) func(*Observed) {
	return func(o *Observed) {
		for i := range o.Members {
			for _, name := range names {
				if m := &o.Members[i]; m.Name == name {
					m.Listed, m.Serving, m.Voter = false, false, false
					m.Says.Retire = leases.Retirement{State: leases.RetireDone, Mark: "m", ClusterID: "9", MemberID: "1", By: "p", RaftTerm: 1, RaftIndex: 1}
				}
			}
		}
		o.Record.Members = nil
		for _, m := range o.Members {
			if m.Listed {
				o.Record.Members = append(o.Record.Members, m.Name)
			}
		}
	}
}

func TestMembersOfADeletedClusterLeaveThoseThatStay(t *testing.T) {
	tests := map[string]struct {
		change func(*Desired)
		o      Observed
		want   []string
		words  string
	}{
		"it is written down first": {
			o: parting(func(o *Observed) { o.Record.Leaving = false }), want: []string{"UpdateRecord leave "},
			words: "deleted: 3 members of it leave the cluster that was joined, one after another, each while those that stay are a healthy quorum; of the former cluster there are still 3 members",
		},
		"one after another, and no member waits for another": {
			o:    parting(func(o *Observed) { o.Members[0].EtcdReady, o.Members[0].Serving = false, false }),
			want: []string{"OpenSlot too-many c-a"}, words: "deleted: 3 members of it leave",
		},
		"a second one that is down holds no one up": {
			o: parting(func(o *Observed) {
				o.Members[0].EtcdReady, o.Members[0].Serving = false, false
				o.Members[1].EtcdReady, o.Members[1].Serving = false, false
			}, taken("c-b")), want: []string{"RetireLease request c-b"}, words: "deleted: 3 members of it leave",
		},
		"the last one leaves too": {
			o: parting(left("c-a", "c-b"), func(o *Observed) {
				o.Members = o.Members[2:]
			}), want: []string{"OpenSlot too-many c-c"}, words: "deleted: 1 member of it leave",
		},
		"of those that are out the Pods go, and the volumes stay": {
			o: parting(left("c-a"), taken("c-b"), func(o *Observed) {
				o.Members[1].Serving, o.Members[1].Says.Retire = false, leases.Retirement{State: leases.RetireRequested, Mark: "m"}
			}),
			want: []string{"ApplyBudget budget-lowered  2", "DeletePod removed-pod c-a"}, words: "deleted: 2 members of it leave the cluster that was joined, one after another, each while those that stay are a healthy quorum, c-b now",
		},
		"a claim of one that is out is as it is": {
			o: parting(left("c-a"), taken("c-b"), func(o *Observed) {
				o.Members[0].Pod = PodAbsent
				o.Members[1].Serving, o.Members[1].Says.Retire = false, leases.Retirement{State: leases.RetireRequested, Mark: "m"}
			}), want: []string{"ApplyBudget budget-lowered  2"}, words: "deleted: 2 members",
		},
		"one whose Pod is gone comes back, for only it can send itself off": {
			o: parting(taken("c-a"), func(o *Observed) {
				o.Members[0].Pod, o.Members[0].Serving, o.Members[0].Voter, o.Members[0].EtcdReady = PodAbsent, false, false, false
			}), want: []string{"CreatePod pod-missing c-a", "RetireLease request c-a"}, words: "deleted: 3 members",
		},
		"neither a deadline, nor backups that fail, nor an edited spec hinder it": {
			change: func(d *Desired) { d.Expired, d.Replicas, d.Backup = true, 5, true },
			o:      parting(func(o *Observed) { o.Full, o.Delta = Snapshot{}, Snapshot{} }),
			want:   []string{"OpenSlot too-many c-a"}, words: "deleted: 3 members",
		},
		"deleted in the foreground it waits until all is gone": {
			change: func(d *Desired) { d.Foreground = true }, o: parting(), want: []string{}, words: "deleted in the foreground",
		},
		"a lost record comes back": {
			o:    whole(func(o *Observed) { o.RecordState, o.Record = RecordAbsent, leases.Record{} }),
			want: []string{"CreateRecord record-lost "}, words: "deleted while others are in the cluster that was joined, and its members cannot be reported",
		},
		"once no one else is there it is left to Kubernetes": {o: parting(sharing()), want: []string{}},
		"left as orphans they stay":                          {change: func(d *Desired) { d.Orphans = true }, o: parting(), want: []string{}},
		"nothing is done in a namespace that goes":           {change: func(d *Desired) { d.NamespaceGoes = true }, o: parting(), want: []string{}},
		"without the finalizer it is any cluster":            {change: func(d *Desired) { d.Held = false }, o: parting(), want: []string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := deletedBesideOthers()
			if test.change != nil {
				test.change(&d)
			}
			if diff := cmp.Diff(test.want, short(Steps(d, test.o))); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if test.words == "" {
				return
			}
			s := Status(d, test.o, v1alpha1.EtcdClusterStatus{ClusterID: "9"}, nil, 1, metav1.Time{})
			c := condition(s, v1alpha1.ConditionProgressing)
			if c.Reason != v1alpha1.ReasonLeavingJoinedCluster || !strings.HasPrefix(c.Message, test.words) {
				t.Errorf("condition is %s %q, want %q", c.Reason, c.Message, test.words)
			}
		})
	}
}

// The record of a cluster that lives orders no one out, anyone who wrote it: only a deletion that druid holds does.
func TestNoOneLeavesAClusterThatIsNotDeleted(t *testing.T) {
	d := deletedBesideOthers()
	d.Deleted = false
	if got := short(Steps(d, parting())); len(got) != 0 {
		t.Errorf("steps are %v, want none", got)
	}
}

func TestWhoElseIsThere(t *testing.T) {
	wasFormed := Desired{ClusterID: 9}
	for name, test := range map[string]struct {
		d    Desired
		o    Observed
		want hosts
	}{
		"nothing was made yet":                 {Desired{}, Observed{RecordState: RecordAbsent}, hostsNeverFormed},
		"the seed has not begun":               {Desired{}, Observed{RecordState: RecordForming}, hostsNeverFormed},
		"the seed has claimed to join":         {Desired{}, Observed{RecordState: RecordForming, Record: leases.Record{Executor: "pod"}}, hostsBegun},
		"a lost record of a cluster that was":  {wasFormed, Observed{RecordState: RecordAbsent}, hostsUnknown},
		"a rolled back record":                 {wasFormed, Observed{RecordState: RecordForming}, hostsUnknown},
		"a record that cannot be read":         {wasFormed, Observed{RecordState: RecordUnreadable}, hostsUnknown},
		"a record of someone else":             {wasFormed, Observed{RecordState: RecordForeign}, hostsForeign},
		"a record that was made again":         {wasFormed, whole(), hostsUnknown},
		"before the first list":                {wasFormed, whole(func(o *Observed) { o.Record.Externals = []string{"a1"} }), hostsUnknown},
		"others are listed":                    {wasFormed, whole(sharing("etcd-0")), hostsThere},
		"none is":                              {wasFormed, whole(sharing()), hostsNone},
		"all have left":                        {wasFormed, parting(left("c-a", "c-b", "c-c")), hostsLeft},
		"an empty record that no one has left": {wasFormed, whole(func(o *Observed) { o.Record.Members = nil }), hostsUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hostsOf(test.d, test.o); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
