package membership

import (
	"cmp"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Member is one entry of etcd's member list.
type Member struct {
	ID uint64
	// Name is empty until the member started for the first time and published it through raft.
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
}

// Started says whether the member ever ran and reported the cluster so. A voter that never started can only be the first
// member of a cluster or one that was added behind our back: we add learners alone.
func (m Member) Started() bool { return m.Name != "" }

// Is says whether the entry is the member called name that is reached at peerURL. A member that never started has no name.
func (m Member) Is(name, peerURL string) bool {
	return m.Name == name || slices.Contains(m.PeerURLs, peerURL)
}

// View is the member list as a quorum reported it to one endpoint: a linearizable read.
type View struct {
	ClusterID uint64
	// Endpoint that answered, and the ID of the member behind it.
	Endpoint string
	Answerer uint64
	// RaftTerm and RaftIndex are a position that the list surely includes: they were read before the list.
	RaftTerm, RaftIndex uint64
	// DBSizeInUse of the answering member, in bytes: what a joiner will have to hold.
	DBSizeInUse int64
	// Members, sorted by ID.
	Members []Member
}

// Find returns the member called name that is reached at peerURL. The URL comes first: etcd lets no two members have the
// same, while anybody may start one under another's name.
func (v View) Find(name, peerURL string) (Member, bool) {
	i := slices.IndexFunc(v.Members, func(m Member) bool { return slices.Contains(m.PeerURLs, peerURL) })
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

// Voters are the members whose votes count for the quorum.
func (v View) Voters() []Member { return v.filter(false) }

// Learners are the members that do not vote.
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

// Same says whether two views list the same members, in the same roles.
func (v View) Same(w View) bool {
	return v.ClusterID == w.ClusterID && slices.EqualFunc(v.Members, w.Members, func(a, b Member) bool {
		return a.ID == b.ID && a.Learner == b.Learner && slices.Equal(a.PeerURLs, b.PeerURLs)
	})
}

// Quorum of n voters.
func Quorum(n int) int { return n/2 + 1 }

func members(list []*etcdserverpb.Member) []Member {
	out := make([]Member, 0, len(list))
	for _, m := range list {
		out = append(out, Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
