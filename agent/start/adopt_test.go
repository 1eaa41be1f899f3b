package start

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/golden"
	etcd "github.com/etcd-druid/druid/test/member"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestAdoptionsAreSafeForAllFacts also fixes the content of the table.
func TestAdoptionsAreSafeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, adoptions, func(f AdoptionFacts, _ rules.Decision[adoptionVerdict]) string {
		return brokenByAdoption(f, decideAdoption(f))
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "joining", "A bootstrap by joining: agent/start.adoptions",
		"The agent of the seed uses this table if the start table decides first-boot and spec.bootstrap.join names a running cluster.", adoptions, cases)
}

// TestThePluginKnowsTheStartRules writes the rules of the Leases for internal/view, which must not link this package.
func TestThePluginKnowsTheStartRules(t *testing.T) {
	var text strings.Builder
	for _, r := range startRules.Rows() {
		fmt.Fprintf(&text, "start %s %s\n", r.Name, r.Why)
	}
	for _, r := range adoptions.Rows() {
		fmt.Fprintf(&text, "joining %s %s\n", r.Name, r.Why)
	}
	golden.File(t, "../../internal/view/startrules.txt", text.String())
}

// brokenByAdoption returns the guarantee that a decision violates, or an empty string.
func brokenByAdoption(f AdoptionFacts, a adoption) string {
	acts := a.Mode == ModeAdopt
	switch {
	case a.Mode == ModeNew || a.Mode == ModeRestore:
		return "a second cluster next to the one that is to be joined"
	case acts != (a.step != 0):
		return "acts without a step, or has a step and does not act"
	case acts && f.Source&(SourceSilent|SourceOther|SourceUnfit) != 0:
		return "changes a cluster that is not known, is another one, or cannot be joined"
	case a.step != stepClaim && acts && f.Claimed != Intended:
		return "changes the cluster before the record says which"
	case acts && f.Entry == VoterEntry:
		return "touches a voter"
	case a.step == stepDrop && f.Entry != OldLearner:
		return "removes what is no old learner of ours"
	case a.step == stepEnter && f.Entry&(OldLearner|VoterEntry) != 0:
		return "R4: starts a listed ID without its data"
	case a.step == stepEnter && f.Entry == NoEntry && (f.Source != SourceFit || f.Needs != Met):
		return "adds a member to a cluster that is not healthy, or that it cannot follow"
	}
	return ""
}

// TestJoinRefusals: the reasons not to join a cluster.
func TestJoinRefusals(t *testing.T) {
	tests := map[string]struct {
		change func(*sourceSight)
		want   Source
		words  string
	}{
		"nothing":                            {func(*sourceSight) {}, SourceFit, ""},
		"no answer":                          {func(s *sourceSight) { s.listErr = errors.New("refused") }, SourceSilent, "refused"},
		"another cluster answers":            {func(s *sourceSight) { s.listErr = fmt.Errorf("x: %w", membership.ErrOtherCluster) }, SourceOther, "another cluster"},
		"one endpoint is of another cluster": {func(s *sourceSight) { s.foreign = []string{"http://b:2379"} }, SourceOther, "http://b:2379"},
		"authentication is on":               {func(s *sourceSight) { s.readErr = rpctypes.ErrUserEmpty }, SourceUnfit, "authentication is enabled"},
		"no quorum reads":                    {func(s *sourceSight) { s.readErr = errors.New("deadline") }, SourceSilent, "deadline"},
		"authentication is on, and the certificate names a user": {func(s *sourceSight) { s.readErr = errAuthEnabled }, SourceUnfit,
			"authentication is enabled"},
		"authentication is on, and the certificate names another user": {func(s *sourceSight) { s.readErr = rpctypes.ErrUserNotFound }, SourceUnfit,
			"authentication is enabled"},
		"peers speak TLS": {func(s *sourceSight) { s.view.Members[0].PeerURLs = []string{"https://a:2380"} }, SourceUnfit,
			"with a spec.tls.peer.secretRef"},
		"clients speak TLS": {func(s *sourceSight) { s.view.Members[1].ClientURLs = []string{"https://b:2379"} }, SourceUnfit,
			"with spec.bootstrap.join.tls"},
		"a peer rejects our certificate": {func(s *sourceSight) { s.peerErrs = map[uint64]error{2: errors.New("bad certificate")} }, SourceUnhealthy,
			"with the certificates of spec.tls.peer: bad certificate"},
		"it has a learner": {func(s *sourceSight) { s.view.Members[1].Learner = true }, SourceUnhealthy, "member b (2): it is a learner"},
		"our own learner is none of its": {func(s *sourceSight) {
			s.view.Members = append(s.view.Members, membership.Member{ID: 9, PeerURLs: []string{"http://us:2380"}, Learner: true})
		}, SourceFit, ""},
		"a member never started":   {func(s *sourceSight) { s.view.Members[1].Name = "" }, SourceUnhealthy, "never started"},
		"a member does not answer": {func(s *sourceSight) { s.statusErrs[2] = errors.New("no route") }, SourceUnhealthy, "no route"},
		"a member runs an older minor": {status(2, func(s *membership.Status) { s.Version = "3.5.31" }), SourceUnfit,
			"the minor versions must be the same"},
		"a member runs a newer minor": {status(2, func(s *membership.Status) { s.Version = "3.7.0" }), SourceUnfit,
			"the minor versions must be the same"},
		"a member runs a patch with bugs": {status(1, func(s *membership.Status) { s.Version = "3.6.11" }), SourceUnfit,
			"upgrade it to 3.6.12 or later"},
		"a member runs a vendor's patch":     {status(1, func(s *membership.Status) { s.Version = "3.6.12-0" }), SourceFit, ""},
		"a member's version cannot be read":  {status(1, func(s *membership.Status) { s.Version = "3.6.x" }), SourceUnfit, "want 3.minor.patch"},
		"a member knows no leader":           {status(1, func(s *membership.Status) { s.Leader = 0 }), SourceUnhealthy, "no leader"},
		"an alarm stands":                    {status(1, func(s *membership.Status) { s.Errors = []string{"alarm:NOSPACE"} }), SourceUnhealthy, "NOSPACE"},
		"the database is too large for ours": {status(1, func(s *membership.Status) { s.DBSize = 95 << 20 }), SourceUnfit, "quota of 100 MiB"},
		"what an operator must repair is reported first": {
			both(status(1, func(s *membership.Status) { s.Leader = 0 }), status(2, func(s *membership.Status) { s.Version = "3.5.31" })), SourceUnfit, "member b"},
		"of two that ail the first is reported": {
			both(status(1, func(s *membership.Status) { s.Leader = 0 }), status(2, func(s *membership.Status) { s.Leader = 0 })), SourceUnhealthy, "member a"},
		"what is unfit is not hidden by an ache": {
			both(status(1, func(s *membership.Status) { s.Version = "3.5.31" }), status(2, func(s *membership.Status) { s.Leader = 0 })), SourceUnfit, "member a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fine := membership.Status{Leader: 1, Version: "3.6.12", DBSize: 1 << 20}
			s := sourceSight{
				view: membership.View{Members: []membership.Member{
					{ID: 1, Name: "a", PeerURLs: []string{"http://a:2380"}, ClientURLs: []string{"http://a:2379"}},
					{ID: 2, Name: "b", PeerURLs: []string{"http://b:2380"}, ClientURLs: []string{"http://b:2379"}},
				}},
				statuses: map[uint64]membership.Status{1: fine, 2: fine}, statusErrs: map[uint64]error{},
			}
			test.change(&s)
			cfg := config.Config{EtcdVersion: "3.6.16", QuotaBackendBytes: 100 << 20}
			got, words := sourceOf(&cfg, &s, "http://us:2380")
			if got != test.want || !strings.Contains(words, test.words) || (test.words == "") != (words == "") {
				t.Errorf("%d, %q; want %d, %q", got, words, test.want, test.words)
			}
		})
	}
}

func status(id uint64, change func(*membership.Status)) func(*sourceSight) {
	return func(s *sourceSight) {
		status := s.statuses[id]
		change(&status)
		s.statuses[id] = status
	}
}

func both(a, b func(*sourceSight)) func(*sourceSight) {
	return func(s *sourceSight) { a(s); b(s) }
}

// joining configures every member of c to join the running cluster.
func (c *cluster) joining(running []*etcd.Member) {
	var endpoints []string
	for _, m := range running {
		endpoints = append(endpoints, m.Endpoint)
	}
	for _, m := range c.members {
		m.cfg.Join = config.JoinOf(endpoints)
	}
}

// lists waits until a client of the running cluster lists exactly the voters.
func (c *cluster) lists(client *clientv3.Client, names ...string) {
	c.t.Helper()
	slices.Sort(names)
	c.eventually(fmt.Sprintf("%v vote", names), func() error {
		list, err := client.MemberList(c.t.Context())
		if err != nil {
			return err
		}
		var voters []string
		for _, m := range list.Members {
			if !m.IsLearner {
				voters = append(voters, m.Name)
			}
		}
		if slices.Sort(voters); !slices.Equal(voters, names) || len(list.Members) != len(names) {
			return fmt.Errorf("it lists %v", list.Members)
		}
		return nil
	})
}

func TestARunningClusterIsJoined(t *testing.T) {
	for _, version := range versions {
		t.Run("etcd "+version[:3], func(t *testing.T) {
			running := etcd.StartCluster(t, version[:3], 3)
			if _, err := running[0].Client.Put(t.Context(), "here", "before"); err != nil {
				t.Fatal(err)
			}
			c := newCluster(t, version, "c-a", "c-b")
			c.joining(running)
			for _, m := range c.members {
				m.start()
			}
			c.lists(running[0].Client, "etcd-0", "etcd-1", "etcd-2", "c-a", "c-b")
			c.adopted(running)
			if deeds := adoptedBy(c.members["c-a"]); !slices.Equal(deeds, []string{"intend-to-join", "add-learner"}) {
				t.Errorf("the seed decided by %v", deeds)
			}
			if got := c.get("c-b", "here"); got != "before" {
				t.Errorf("the members that joined hold %q", got)
			}
		})
	}
}

// adopted checks the record and the volumes of a cluster that joined another one.
func (c *cluster) adopted(running []*etcd.Member) {
	c.t.Helper()
	status, err := running[0].Client.Status(c.t.Context(), running[0].Endpoint)
	if err != nil {
		c.t.Fatal(err)
	}
	record, _ := c.record()
	if record.Phase != leases.PhaseFormed || record.ClusterID != status.Header.ClusterId || record.MaxLearners != leases.MaxLearnersAdopted ||
		len(record.Externals) != len(running) || !slices.Contains(record.Externals, leases.FormatID(status.Header.MemberId)) {
		c.t.Errorf("the record says %+v", record)
	}
	for name, m := range c.members {
		c.eventually("the identity file of "+name, func() error {
			identityFile, err := datadir.ReadIdentityFile(m.cfg.VolumePath)
			if err != nil || !identityFile.Formed || uint64(identityFile.ClusterID) != record.ClusterID || identityFile.Lineage != record.Lineage ||
				!slices.Equal(externalsOf(identityFile), record.Externals) {
				return fmt.Errorf("%+v: %w", identityFile, err)
			}
			return nil
		})
	}
}

// TestDeadAgentsLearnerAddedAgain: a learner of an agent that died is added again.
// A learner is added and its agent dies before etcd starts. The next agent does not know of it and does not start it.
func TestDeadAgentsLearnerAddedAgain(t *testing.T) {
	running := etcd.StartCluster(t, "3.6", 1)
	c := newCluster(t, "3.6.16", "c-a")
	c.joining(running)
	seed := c.members["c-a"]
	seed.next(seed.boot()) // the learner is listed, and its etcd does not start
	before, _ := c.record()
	if before.Phase != leases.PhaseForming || before.ClusterID == 0 || len(before.Externals) != 1 {
		t.Fatalf("the record says %+v", before)
	}
	seed.start()
	c.lists(running[0].Client, "etcd-0", "c-a")
	if deeds := adoptedBy(seed); !slices.Equal(deeds, []string{"drop-old-learner", "add-learner"}) {
		t.Errorf("it decided by %v", deeds)
	}
	c.adopted(running)

	// The record is lost and druid creates it again. A running member adds the IDs of the members that the group had
	// before.
	bare := leases.Record{Phase: leases.PhaseFormed, ClusterID: before.ClusterID, Members: before.Members}
	whole, lacked := seed.b.CompleteRecord(bare)
	if !lacked || !slices.Equal(whole.Externals, before.Externals) || whole.MaxLearners != leases.MaxLearnersAdopted {
		t.Errorf("completed to %+v", whole)
	}
}

// TestJoinOnlyTheClusterBegunWith: a member joins only the cluster that it began to join.
func TestJoinOnlyTheClusterBegunWith(t *testing.T) {
	running, other := etcd.StartCluster(t, "3.6", 1), etcd.StartCluster(t, "3.6", 1, "--initial-cluster-token=other")
	c := newCluster(t, "3.6.16", "c-a")
	c.joining(append(running, other...))
	seed := c.members["c-a"]
	seed.start()
	c.decides("c-a", "source-other")
	seed.halt()

	record, version := c.record()
	if record.Executor != "" || record.ClusterID != 0 {
		t.Errorf("before it was decided whom to join the record says %+v", record)
	}
	status, err := running[0].Client.Status(t.Context(), running[0].Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	record.ClusterID, record.Executor = status.Header.ClusterId, "another Pod"
	if _, err := c.store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Fatal(err)
	}
	c.joining(other)
	seed.start()
	c.decides("c-a", "source-other")
	if list, err := other[0].Client.MemberList(t.Context()); err != nil || len(list.Members) != 1 {
		t.Errorf("the other cluster lists %v, %v", list, err)
	}
	seed.halt()

	c.joining(running)
	seed.start()
	c.lists(running[0].Client, "etcd-0", "c-a")
}

// TestUnjoinableClusterUntouched: a cluster that cannot be joined is left alone.
func TestUnjoinableClusterUntouched(t *testing.T) {
	running := etcd.StartCluster(t, "3.6", 1)
	c := newCluster(t, "3.7.3", "c-a")
	c.joining(running)
	c.members["c-a"].start()
	c.decides("c-a", "source-unfit")
	running[0].Kill(t)
	c.decides("c-a", "source-silent")
	if record, _ := c.record(); record.Executor != "" || record.Phase != leases.PhaseForming {
		t.Errorf("the record says %+v", record)
	}
}

// adoptedBy returns the rules by which a seed decided. It skips repeated decisions: when etcd did not respond in time,
// the seed observes again and finds what it did.
func adoptedBy(seed *member) []string {
	return slices.Compact(slices.DeleteFunc(seed.deeds(), func(rule string) bool { return rule == "finish-joining" }))
}
