package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// The recovery from a lost quorum has a world of its own: a cluster of three or five that was formed, and whose members lose their data,
// their peers and the API server. Joins are one step here, because the other world takes them apart.

// lostMutation is a guard of a recovery that a mutation takes away.
type lostMutation uint32

const (
	mutUnfenced      lostMutation = 1 << iota // an agent acknowledges an order before the volume says so
	mutUnheard                                // druid takes all disk reports for acknowledgements
	mutAwayIsLost                             // druid takes a member that is away for lost
	mutLateRelease                            // druid writes a release over a record that changed
	mutFiresTwice                             // the chosen agent records its raft group whatever the record says now
	mutLateServes                             // a raft group that was replaced serves on
	mutClaimIsStale                           // the chosen agent does not compare its disk report with the order's
	mutNoLateRelease                          // druid does not look at who returns while an order is executed
	mutBestByCommit                           // the best disk is the one whose commit index is the highest
	mutBestByLength                           // the best disk is the one whose log is the longest, whatever its last term
	mutUnreported                             // a learner gets its vote whatever its Lease says of the disk
	mutNoLaterGroup                           // an agent does not compare its data with the raft group in its Lease
	mutOldBackup                              // the chosen agent restores what it finds, although the order names a newer backup
	mutDisksUnused                            // an agent does not report the revision of its disk, so that any backup has more
	mutNoRelease                              // druid releases no order
	mutNoOther                                // druid replaces no order by another one
	mutNoRecord                               // druid makes no record again
	mutNoPlace                                // an agent does not use what it built if the record has no lineage
	mutNoLimit                                // a raft group that is formed again has the limit of learners of the record only
	mutAlwaysRecent                           // druid does not forget that it recovered the cluster
	mutUnasked                                // druid takes the policy Manual for Automatic
	mutUnbounded                              // druid takes any known loss for permitted
	mutLearnersIdle                           // druid does not count a learner as one more voter that can serve
)

// lostGroup is a raft group. writes has the numbers of the committed writes in its log, and terms the term of each.
type lostGroup struct {
	cluster uint64
	epoch   uint32
	lostList
	before  []lostList // the earlier lists of members
	writes  []int
	terms   []uint64
	term    uint64 // of the last leader
	lineage string
	parent  int   // the raft group from whose backups it was restored
	base    int64 // the revision before its first write, and served is how many writes it had at the last one through the Service
	served  int
	stored  int   // how many of its writes are in the backup store
	fork    int64 // the revision of the raft group before up to which it continues that
}

// lostList are the members of a raft group, by a change in its log. A list is not changed after that.
type lostList struct {
	voters, learners map[uint64]int // the member of each raft ID
	at               int            // how long the log is with the change
}

// lostMember is a member: its node, its volume, its agent and its Lease.
type lostMember struct {
	on, api, net, run bool
	gone              bool // its node was declared out of service
	there             bool // there is data
	group, index      int  // its log begins with so many committed writes of the raft group
	lostLog
	identity      datadir.IdentityFile
	built         datadir.IdentityFile
	buildOf       int // the raft group of what was built
	volume        int
	acknowledged  string
	cannotExecute string // the order that it cannot carry out
	step          lostStep
	sight         start.Sight
	version       int
	attempt       leases.RecoveryAttempt
	lease         leases.Member
	acked         [2]int // how often each druid had looked when it acknowledged its order
}

type lostStep uint8

const (
	lostLook  lostStep = iota
	lostAct            // it decided
	lostBuild          // it claimed an order
	lostForm           // it built the data
)

type lostDruid struct {
	seen, live policy.Observed
	version    int
	looked     int // the version of the record when it planned its step
	step       *policy.Step
	pods       [lostMost]podLabels // the Pods of its last look
	half       bool                // it confirms its step, and read only the Pods yet
	cached     *lostCache          // what its caches have, nil if they are up to date
	early      *lostCache          // what a mutation lets it read before the Pods
	due        *statusWrite        // the status that follows from its last look, until it writes that
	looks      int                 // how often it looked, by caches that are up to date
}

type lostWorld struct {
	record        leases.Record
	there         bool
	version       int
	old           *leases.Record
	members       []lostMember
	groups        []lostGroup
	druids        [2]lostDruid
	approved      string
	nonces, wrote int
	gaveUp        int                         // how many members the user gave up
	formedBy      map[leases.RecoveryMode]int // the raft groups that were formed again
	ordered       map[policy.Kind]int         // the steps of druid that changed the order in the record
	unended       int                         // the raft groups that were built from a log with an end that was not committed
	newest        int                         // the raft group that was formed last
	excused       bool                        // the user gave up a member that is not lost, or a backup is not in this world
	policy        lostPolicy
	reported      leases.Backup // what the Lease of full backups says
	status        lostStatus
	now           time.Time         // it passes in steps of ten minutes
	counted       [lostMost]bool    // whose acknowledgements druid saw when it ordered to execute
	losses        map[string]*int64 // how many revisions the plans lose that the user approved, nil for unknown
	mutant        lostMutation
	bad           string
	story         []string
	said          map[string]*said // what the policies say of facts
	facts         []byte           // a buffer for the last facts
	repeats       int              // how often the facts were known
	restoring
}

func (w *lostWorld) say(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func (w *lostWorld) violate(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// lostMost is the largest cluster of this world. With three members, at most one intact disk is left when a quorum is lost. With five,
// there are two to choose from.
const lostMost = 5

// newLostWorld is a cluster of three.
func newLostWorld(mutant lostMutation) *lostWorld { return newLostWorldOf(3, mutant) }

func newLostWorldOf(size int, mutant lostMutation) *lostWorld {
	w := &lostWorld{
		there: true, members: make([]lostMember, size), mutant: mutant, policy: lostPolicies[0], ordered: map[policy.Kind]int{},
		formedBy: map[leases.RecoveryMode]int{}, losses: map[string]*int64{}, said: map[string]*said{}, now: time.Unix(0, 0),
	}
	w.record = leases.Record{
		Phase: leases.PhaseFormed, Epoch: 1, FormedEpoch: 1, Nonce: "first", Lineage: leases.LineageOf(1, "first"), MaxLearners: leases.MaxLearners,
		Members: slices.Clone(names[:size]), Seed: names[0],
	}
	token := w.record.Token("n", "c", clusterUID)
	_, cluster, _ := membership.ExpectedIDs(names[0], peerURLs[0][0], token)
	w.record.ClusterID, w.status = cluster, lostStatus{cluster: leases.FormatID(cluster), epoch: 1}
	w.groups = []lostGroup{{cluster: cluster, epoch: 1, term: 1, lostList: lostList{voters: map[uint64]int{}}, lineage: w.record.Lineage}}
	list := leases.MemberList{}
	for k := range w.members {
		id := uint64(100 + k)
		w.groups[0].voters[id] = k
		list.Members = append(list.Members, leases.ListedMember{ID: leases.FormatID(id), Name: names[k], PeerURL: peerURLs[k][0]})
		m := &w.members[k]
		m.on, m.api, m.net, m.run, m.there, m.volume = true, true, true, true, true, k
		m.lease.PodUID, m.lease.VolumeUID, m.lease.LeaseUID = uids[k], uids[k], uids[k]
		cfg := w.config(k)
		m.identity = start.IdentityFileOf(&cfg, w.record, m.lease, cluster, id)
	}
	w.record.MemberList = &list
	for range 3 {
		w.commit(0)
	}
	for k := range w.members {
		w.replicate(k)
		w.renew(k)
	}
	return w
}

// quorum returns the running, connected voters of a raft group, and whether they are a quorum.
func (w *lostWorld) quorum(g int) (up []int, ok bool) {
	for id, k := range w.groups[g].voters {
		if m := &w.members[k]; m.on && m.net && m.run && m.there && m.group == g && uint64(m.identity.MemberID) == id {
			up = append(up, k)
		}
	}
	slices.Sort(up)
	return up, len(up) >= membership.Quorum(len(w.groups[g].voters))
}

// update is a compare-and-set of the record.
func (w *lostWorld) update(version int, record leases.Record, err error) bool {
	if err != nil || !w.there || version != w.version {
		return false
	}
	w.record = record
	w.version++
	if record.Phase == leases.PhaseFormed && record.ClusterID != w.groups[w.newest].cluster && record.FormedEpoch <= w.groups[w.newest].epoch {
		w.violate("the record goes back to epoch %d after epoch %d was formed", record.FormedEpoch, w.groups[w.newest].epoch)
	}
	return true
}
