package model

import (
	"fmt"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// maxMembers is how many names may be drawn in one run; name k is "c-" and the k-th letter.
const maxMembers = 12

// world is the whole state. It is copied by clone: everything behind a pointer or a slice of a slice is never changed in
// place.
type world struct {
	kube
	down   bool // the Kubernetes API
	vols   []volume
	procs  []proc
	groups []group
	druids [2]druid
	counts counters
	calm   bool // faults stopped
	mutant *mutation
	oldRec recordObj
	ghost  ghost
	lines  *[]string
	// until a member is this far on its way out a world heals, empty for until it is healthy.
	until leases.RemovalState
	fine  bool // reads of one look are steps of their own
}

// counters name things: no UID, nonce or raft ID is given twice.
type counters struct{ version, uid, nonce, id int }

// ghost is what no process in the world can see and the invariants need.
type ghost struct {
	// formed is the raft group, as index+1, whose bootstrap was recorded.
	formed int
	// excused: so many volumes were hurt that a quorum of intact ones is gone; nothing is promised of its data any more.
	excused bool
	// started are the raft IDs whose etcd wrote a log.
	started []uint64
	wrote   int // the group, as index+1, that acknowledged a client's write
	bad     string
	// helpless says why an operator is needed: safety holds, healing is not promised.
	helpless string
	// left are names whose remains an operator has to take away: nothing proves any more that they are superfluous.
	left [maxMembers]bool
}

// kube is the API server's content: what a druid's cache holds a copy of.
type kube struct {
	record   recordObj
	members  [maxMembers]memberObj
	drawn    int
	replicas int
	statusID uint64
	known    [maxMembers]bool
	retain   bool // claims outlive their members and their cluster
	replace  int  // the member that the user lets druid replace, from 1, or 0
}

type recordObj struct {
	there   bool
	version int
	says    leases.Record
}

type memberObj struct {
	lease struct {
		there                 bool
		uid, version, renewed int
		says                  leases.Member
	}
	claim struct {
		there, going bool
		owned        bool // goes with the EtcdCluster
		uid, vol     int
	}
	pod struct {
		there, going   bool
		uid            int
		serving, voter bool
		routed         bool // clients are sent to it
		live, ready    bool // as the kubelet last reported
	}
}

type data struct {
	there              bool
	group              int
	cluster, member    uint64
	index, term        int
	dishonest, corrupt bool
}

type volume struct {
	data             data
	identityFile     datadir.IdentityFile
	stamped          bool
	quarantined      int
	quarantineFormed bool
	copied           *volume // an older state of it
	lock             int     // the proc, as index+1, whose launch holds it
}

// entry is one member of a raft group's configuration.
type entry struct {
	id      uint64
	k       int
	name    string
	learner bool
}

type conf struct {
	at      int
	members []entry
}

// group is one raft group: one bootstrap. Its log is a count of entries, all committed.
type group struct {
	cluster              uint64
	term, length, leader int
	confs                []conf
}

// proc is a Pod's containers on a node: launch, etcd and the agent. It may outlive the Pod object.
type proc struct {
	k, vol, pod    int
	alive          bool
	agent          bool // the agent's container runs
	cut            bool // no peer reaches it
	cutAPI         bool // it does not reach the Kubernetes API
	zombie         bool // the kubelet does not hear that its Pod is gone
	run            bool // etcd runs
	young          bool // its etcd is connected for less than 5 s
	limit          int  // max-learners of its etcd
	start          starting
	resolvePending finishing
	renew          renewing
	duty           leading
}

// starting is one look of the start and what follows.
type starting struct {
	step    uint8
	sight   start.Sight
	version int
	facts   start.Facts
	rule    string
	mode    start.Mode
	view    membership.View
	entry   membership.Member
	// The learner that this agent added.
	asked    bool
	id       uint64
	attempts int
	// What is about to be stamped and started.
	identityFile datadir.IdentityFile
}

type finishing struct {
	step    uint8
	record  leases.Record
	version int
}

type renewing struct {
	read      bool
	version   int
	pod       string
	id        uint64
	candidate leases.Raft
	surely    leases.Raft
}

type leading struct {
	step             uint8
	view             membership.View
	record           leases.Record
	version          int
	removalCandidate uint64
	since            []suspect
	tired            bool // removed one within the grace period
	drain            draining
}

type suspect struct {
	id      uint64
	elapsed bool
}

// druid is one replica; both may think that they lead.
type druid struct {
	up       bool
	cache    kube
	steps    []policy.Step
	observed policy.Observed
	desired  policy.Desired
	liveness [maxMembers]leases.Liveness
	renewed  [maxMembers]int
	checked  bool // the first step was planned once more from live reads
	lease    int  // the version of its member's Lease in them
	stuck    bool // the seed's time is over
}

func newWorld(replicas int) *world {
	w := &world{}
	w.replicas = replicas
	for i := range w.druids {
		w.druids[i].up = i == 0
		w.druids[i].cache.replicas = replicas
	}
	return w
}

// copyInto makes c equal to w and uses the memory that c has.
func (w *world) copyInto(c *world) {
	vols, procs, groups := c.vols[:0], c.procs[:0], c.groups[:0]
	*c = *w
	c.vols, c.procs, c.groups = append(vols, w.vols...), append(procs, w.procs...), append(groups, w.groups...)
	c.lines = nil
}

// say adds a line to the story, if anybody listens.
func (w *world) say(format string, args ...any) {
	if w.lines != nil {
		if line := fmt.Sprintf(format, args...); len(*w.lines) == 0 || (*w.lines)[len(*w.lines)-1] != line {
			*w.lines = append(*w.lines, line)
		}
	}
}

// violate notes the first broken invariant.
func (w *world) violate(format string, args ...any) {
	if w.ghost.bad == "" {
		w.ghost.bad = fmt.Sprintf(format, args...)
		w.say("VIOLATION: %s", w.ghost.bad)
	}
}

var (
	names    [maxMembers]string
	peerURLs [maxMembers][]string
	uids     [4096]string
)

func init() {
	for k := range names {
		names[k] = "c-" + string(rune('a'+k))
		peerURLs[k] = []string{"http://" + names[k] + ".c-peer:2380"}
	}
	for i := range uids {
		uids[i] = fmt.Sprintf("u%d", i)
	}
}

func indexOf(name string) int { return int(name[2] - 'a') }

func (w *world) uid() int {
	w.counts.uid++
	return w.counts.uid
}

func (w *world) nextVersion() int {
	w.counts.version++
	return w.counts.version
}

// reaches says whether the proc's agent reaches the Kubernetes API.
func (w *world) reaches(p *proc) bool { return !w.down && !p.cutAPI }
