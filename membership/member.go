package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	etcdmembership "go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"

	"github.com/etcd-druid/druid/internal/rules"
)

// Member is one entry of etcd's member list.
type Member struct {
	ID uint64
	// Name is empty until the member started for the first time and published its name through raft.
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
}

// Started says whether the member ever ran and published its name to the cluster. A voter that never started is either
// the first member of a cluster or was not added by an agent, because agents add only learners.
func (m Member) Started() bool { return m.Name != "" }

// Is says whether the entry is the member called name with peerURL. A member that never started has no name.
func (m Member) Is(name, peerURL string) bool {
	return m.Name == name || m.At(peerURL)
}

// At says whether the entry has the host and port of peerURL. The scheme does not matter: it changes when TLS is turned on or
// off, and the member stays the same.
func (m Member) At(peerURL string) bool {
	return slices.ContainsFunc(m.PeerURLs, func(url string) bool { return hostOf(url) == hostOf(peerURL) })
}

func hostOf(url string) string {
	if _, host, ok := strings.Cut(url, "://"); ok {
		return host
	}
	return url
}

// View is the member list as a quorum reported it to one endpoint, by a linearizable read.
type View struct {
	ClusterID uint64
	// Endpoint that answered, and the ID of its member.
	Endpoint string
	Answerer uint64
	// RaftTerm and RaftIndex are a position that the list includes, because they were read before the list.
	RaftTerm, RaftIndex uint64
	// DBSizeInUse of the answering member, in bytes: the space that a joining member needs.
	DBSizeInUse int64
	// Members, sorted by ID.
	Members []Member
}

// Find returns the member called name with peerURL. The URL has priority: etcd does not allow two members with the
// same URL, but a member can start with another's name.
func (v View) Find(name, peerURL string) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.At(peerURL) })
	if i < 0 {
		i = slices.IndexFunc(v.Members, func(m Member) bool { return m.Name == name })
	}
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// Member returns the member with id.
func (v View) Member(id uint64) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return v.Members[i], true
}

// Voters returns the members whose votes count for the quorum.
func (v View) Voters() []Member { return v.filter(false) }

// Learners returns the members that do not vote.
func (v View) Learners() []Member { return v.filter(true) }

func (v View) filter(learner bool) []Member {
	var members []Member
	for _, m := range v.Members {
		if m.Learner == learner {
			members = append(members, m)
		}
	}
	return members
}

// Same says whether two views list the same members in the same roles.
func (v View) Same(w View) bool {
	return v.ClusterID == w.ClusterID && slices.EqualFunc(v.Members, w.Members, func(a, b Member) bool {
		return a.ID == b.ID && a.Learner == b.Learner && slices.Equal(a.PeerURLs, b.PeerURLs)
	})
}

// Quorum returns the quorum of n voters.
func Quorum(n int) int { return n/2 + 1 }

func members(list []*etcdserverpb.Member) []Member {
	out := make([]Member, 0, len(list))
	for _, m := range list {
		out = append(out, Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// ExpectedIDs returns the IDs that etcd assigns to the only member and to the cluster when name at peerURL forms a new
// cluster with token. It uses etcd's own code.
func ExpectedIDs(name, peerURL, token string) (memberID, clusterID uint64, err error) {
	urls, err := types.NewURLsMap(name + "=" + peerURL)
	if err != nil {
		return 0, 0, fmt.Errorf("peer URL %s of %s: %w", peerURL, name, err)
	}
	cluster, err := etcdmembership.NewClusterFromURLsMap(zap.NewNop(), token, urls)
	if err != nil {
		return 0, 0, fmt.Errorf("IDs of %s at %s: %w", name, peerURL, err)
	}
	return uint64(cluster.MemberByName(name).ID), uint64(cluster.ID()), nil
}

// One-bit enums. A fact has exactly one bit, and a rule's cell can have several.
type (
	// Kind of an entry in the member list.
	Kind uint8
	// Voters counts the voters of the list.
	Voters uint8
)

// The kinds. A member is started when it has published its name.
const (
	VoterUnstarted Kind = 1 << iota
	VoterStarted
	LearnerUnstarted
	LearnerStarted
)

// OneVoter: the group has one voter. MoreVoters: it has two or more.
const (
	OneVoter Voters = 1 << iota
	MoreVoters
)

var (
	kindNames = map[Kind]string{
		VoterUnstarted: "voter unstarted", VoterStarted: "voter started",
		LearnerUnstarted: "learner unstarted", LearnerStarted: "learner started",
	}
	votersNames = map[Voters]string{OneVoter: "one", MoreVoters: "more"}
)

func (k Kind) String() string   { return kindNames[k] }
func (v Voters) String() string { return votersNames[v] }

// KindOf returns the kind of an entry.
func KindOf(m Member) Kind {
	switch {
	case m.Learner && m.Started():
		return LearnerStarted
	case m.Learner:
		return LearnerUnstarted
	case m.Started():
		return VoterStarted
	default:
		return VoterUnstarted
	}
}

// VotersOf counts the voters of a list.
func VotersOf(v View) Voters {
	if len(v.Voters()) <= 1 {
		return OneVoter
	}
	return MoreVoters
}

// Desired says whether m is one of names. A member that never started is identified by the host of its peer URL alone.
func Desired(m Member, names []string, peerURL func(name string) string) rules.Answer {
	if m.Started() {
		return rules.AnswerOf(slices.Contains(names, m.Name))
	}
	return rules.AnswerOf(slices.ContainsFunc(names, func(name string) bool { return m.At(peerURL(name)) }))
}

// QuorumWithout says whether the voters other than the member with id have a healthy quorum. health has each voter's
// own answer. A voter without an answer is Unknown and counts as not healthy. The result is Unknown if it depends on
// the unknown voters.
func QuorumWithout(v View, id uint64, health map[uint64]rules.Answer) rules.Answer {
	var left, healthy, unknown int
	for _, m := range v.Voters() {
		if m.ID == id {
			continue
		}
		left++
		switch health[m.ID] {
		case rules.Yes:
			healthy++
		case rules.No:
		default:
			unknown++
		}
	}
	switch quorum := Quorum(left); {
	case left == 0, healthy+unknown < quorum:
		return rules.No
	case healthy >= quorum:
		return rules.Yes
	default:
		return rules.Unknown
	}
}
