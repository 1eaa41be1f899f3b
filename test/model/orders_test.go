package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// The recovery from a lost quorum has a world of its own: a cluster of three that was formed, and whose members lose their data,
// their peers and the API server. Joins are one step here, because the other world takes them apart.

// lostMutation is a guard of a recovery that a mutation takes away.
type lostMutation uint8

const (
	mutUnfenced     lostMutation = 1 << iota // an agent acknowledges an order before the volume says so
	mutUnheard                               // druid takes all claims for acknowledgements
	mutAwayIsLost                            // druid takes a member that is away for lost
	mutLateRelease                           // druid writes a release over a record that changed
	mutFiresTwice                            // the chosen agent records its raft group whatever the record says now
	mutLateServes                            // a raft group that was replaced serves on
	mutClaimIsStale                          // the chosen agent does not compare its claim with the order's
)

// lostGroup is a raft group. writes has the numbers of the acknowledged writes in its log.
type lostGroup struct {
	cluster uint64
	epoch   uint32
	voters  map[uint64]int // the member of each raft ID
	writes  []int
}

// lostMember is a member: its node, its volume, its agent and its Lease.
type lostMember struct {
	on, api, net, run bool
	gone              bool // its node was declared out of service
	there             bool // there is data
	group, index      int
	identity          datadir.IdentityFile
	built             datadir.IdentityFile
	buildOf           int // the raft group of what was built
	volume            int
	acknowledged      string
	step              lostStep
	sight             start.Sight
	version           int
	attempt           leases.RecoveryAttempt
	lease             leases.Member
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
	step       *policy.Step
}

type lostWorld struct {
	record        leases.Record
	there         bool
	version       int
	old           *leases.Record
	members       [3]lostMember
	groups        []lostGroup
	druids        [2]lostDruid
	approved      string
	nonces, wrote int
	newest        int  // the raft group that was formed last
	excused       bool // the user gave up a member that is not lost, or a backup is not in this world
	mutant        lostMutation
	bad           string
	story         []string
}

func (w *lostWorld) say(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func (w *lostWorld) violate(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

func newLostWorld(mutant lostMutation) *lostWorld {
	w := &lostWorld{there: true, mutant: mutant, record: leases.Record{
		Phase: leases.PhaseFormed, Epoch: 1, FormedEpoch: 1, Nonce: "first", Lineage: leases.LineageOf(1, "first"), MaxLearners: leases.MaxLearners,
		Members: slices.Clone(names[:3]), Seed: names[0],
	}}
	token := w.record.Token("n", "c", clusterUID)
	_, cluster, _ := membership.ExpectedIDs(names[0], peerURLs[0][0], token)
	w.record.ClusterID = cluster
	w.groups = []lostGroup{{cluster: cluster, epoch: 1, voters: map[uint64]int{}}}
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

// commit acknowledges one write by a quorum, and by no one else.
func (w *lostWorld) commit(g int) bool {
	up, ok := w.quorum(g)
	if !ok {
		return false
	}
	group := &w.groups[g]
	slices.SortStableFunc(up, func(a, b int) int { return w.members[b].index - w.members[a].index })
	if w.members[up[0]].index < len(group.writes) && !w.excused {
		w.violate("acknowledged writes are lost: the log of every voter of epoch %d ends at %d, and %d were acknowledged", group.epoch, w.members[up[0]].index, len(group.writes))
	}
	if g != w.newest && !w.excused {
		w.violate("two raft groups: epoch %d acknowledges a write after epoch %d was formed", group.epoch, w.groups[w.newest].epoch)
	}
	w.wrote++
	group.writes = append(slices.Clip(group.writes[:min(len(group.writes), w.members[up[0]].index)]), w.wrote)
	for _, k := range up[:membership.Quorum(len(group.voters))] {
		w.members[k].index = len(group.writes)
	}
	return true
}

func (w *lostWorld) replicate(k int) bool {
	m := &w.members[k]
	if _, ok := w.quorum(m.group); !ok || !m.run || !m.net || m.index == len(w.groups[m.group].writes) {
		return false
	}
	m.index = len(w.groups[m.group].writes)
	return true
}

// renew publishes what a member is, or what its volume holds.
func (w *lostWorld) renew(k int) bool {
	m := &w.members[k]
	if !m.on || !m.api {
		return false
	}
	was := m.lease
	if m.run {
		g := &w.groups[m.group]
		m.lease.ID, m.lease.Role, m.lease.ClusterID, m.lease.Epoch, m.lease.Lineage = uint64(m.identity.MemberID), leases.RoleMember, g.cluster, m.identity.Epoch, m.identity.Lineage
		m.lease.Revision, m.lease.Raft = int64(m.index), leases.Raft{Term: 1, LastTerm: 1, LastIndex: uint64(m.index), Committed: uint64(m.index)}
		m.lease.Disk, m.lease.Reason = nil, ""
		return !sameLease(was, m.lease)
	}
	if claim := w.claim(k); claim != nil {
		m.lease.Disk, m.lease.Reason = claim, "waits"
	}
	return !sameLease(was, m.lease)
}

func sameLease(a, b leases.Member) bool {
	return fmt.Sprintf("%+v %+v", a, a.Disk) == fmt.Sprintf("%+v %+v", b, b.Disk)
}

func (w *lostWorld) config(k int) config.Config {
	p := proc{k: k, pod: k}
	return p.config()
}

// claim is what the agent of a member finds on its volume.
func (w *lostWorld) claim(k int) *leases.Claim {
	m := &w.members[k]
	sight := w.sightOf(k)
	cfg := w.config(k)
	voters := []uint64{}
	for id := range w.groups[m.group].voters {
		voters = append(voters, id)
	}
	slices.Sort(voters)
	claim, known := sight.Claim(&cfg, datadir.Holding{Revision: int64(m.index), Voters: voters})
	if !known {
		return nil
	}
	if claim.State != leases.DiskForeign {
		claim.Order = m.acknowledged
	}
	return &claim
}

func (w *lostWorld) sightOf(k int) start.Sight {
	m := &w.members[k]
	s := start.Sight{IdentityFile: m.identity, Built: m.built, Own: m.lease, Record: w.record, Report: datadir.Report{State: datadir.Empty}}
	if !m.there {
		s.IdentityFile, s.IdentityFileErr = datadir.IdentityFile{}, datadir.ErrNoIdentityFile
	} else {
		s.Report = datadir.Report{State: datadir.Intact, ClusterID: w.groups[m.group].cluster, MemberID: uint64(m.identity.MemberID), Term: 1, Last: datadir.Position{Term: 1, Index: uint64(m.index)}}
	}
	switch {
	case !m.api:
		s.Record, s.RecordErr, s.Own, s.OwnErr = leases.Record{}, errUnreached, leases.Member{}, errUnreached
	case !w.there:
		s.Record, s.RecordErr = leases.Record{}, leases.ErrAbsent
	}
	return s
}

// agent is the next step of a member's agent.
func (w *lostWorld) agent(k int) bool {
	m := &w.members[k]
	if !m.on {
		return false
	}
	if m.run {
		return w.watch(k)
	}
	step := m.step
	m.step = lostLook
	switch step {
	case lostAct:
		return w.agentActs(k)
	case lostBuild:
		w.build(k)
	case lostForm:
		w.form(k)
	default:
		m.sight, m.version, m.step = w.sightOf(k), w.version, lostAct
		if m.sight.RecordErr == nil && m.sight.Record.Order() == nil {
			m.acknowledged = ""
		}
	}
	return true
}

// watch stops an etcd for which the record has no use.
func (w *lostWorld) watch(k int) bool {
	m := &w.members[k]
	_, serves := w.quorum(m.group)
	serves = serves && m.net
	sight := w.sightOf(k)
	if serves && w.mutant&mutLateServes != 0 || !sight.Stops(rules.YesNoOf(serves)) {
		return false
	}
	m.run = false
	w.say("%s stops its etcd", names[k])
	return true
}

// agentActs decides on what was read before, and acts.
func (w *lostWorld) agentActs(k int) bool {
	m := &w.members[k]
	cfg := w.config(k)
	f := m.sight.Facts(&cfg)
	serving := -1
	for g := range w.groups {
		cluster := m.sight.Record.ClusterID
		if m.sight.RecordErr != nil {
			cluster = uint64(m.identity.ClusterID)
		}
		if _, ok := w.quorum(g); ok && m.net && w.groups[g].cluster == cluster {
			serving, f.Peers, f.Needs, f.Listed, f.Own = g, start.Answering, start.Met, start.Unlisted, start.OtherID
			if owner, listed := w.groups[g].voters[uint64(m.identity.MemberID)]; listed && owner == k && m.there {
				f.Listed, f.Own = start.Voter, start.OwnID
			}
		}
	}
	claim := w.claim(k)
	if w.mutant&mutClaimIsStale != 0 && claim != nil && m.sight.Record.Recovery != nil && m.sight.Record.Recovery.Chosen == names[k] {
		f.Order = m.sight.OrderOf(&cfg, m.acknowledged, claim)
		if f.Order == start.OrderWait && m.sight.Record.Recovery.Stage == leases.StageExecute {
			f.Order = start.OrderForm
		}
	} else {
		f.Order = m.sight.OrderOf(&cfg, m.acknowledged, claim)
	}
	d := start.Decide(f)
	switch d.Mode {
	case start.ModeResume:
		m.run, m.identity.Prepared = true, 0
	case start.ModePrepare:
		if order := m.sight.Record.Order(); m.there && w.mutant&mutUnfenced == 0 {
			m.identity.Prepared = max(m.identity.Prepared, order.Epoch)
		}
		m.acknowledged = m.sight.Record.Order().Name()
	case start.ModeRecover:
		return w.claimOrder(k)
	case start.ModePlace:
		m.group, m.index, m.identity, m.there = m.buildOf, len(w.groups[m.buildOf].writes), m.built, true
		m.built = datadir.IdentityFile{}
	case start.ModeRejoin, start.ModeJoin, start.ModeReplaceSelf:
		if serving >= 0 {
			w.rejoin(k, serving)
		}
	default:
		return false
	}
	w.say("%s: %s by %s", names[k], d.Mode, d.Rule)
	return true
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

func (w *lostWorld) claimOrder(k int) bool {
	m := &w.members[k]
	if !m.api {
		return false
	}
	w.nonces++
	order := m.sight.Record.Order()
	record := m.sight.Record
	record.Epoch, record.Nonce = order.Epoch, fmt.Sprintf("n%d", w.nonces)
	_, cluster, _ := membership.ExpectedIDs(names[k], peerURLs[k][0], record.Token("n", "c", clusterUID))
	m.attempt = leases.RecoveryAttempt{Order: order.Name(), Nonce: record.Nonce, PodUID: uids[k], ClusterID: leases.FormatID(cluster)}
	claimed, err := m.sight.Record.Claimed(m.attempt)
	if !w.update(m.version, claimed, err) {
		return false
	}
	m.step = lostBuild
	return true
}

// build makes the data of the new raft group from the volume.
func (w *lostWorld) build(k int) {
	m := &w.members[k]
	cluster, _ := leases.ParseID(m.attempt.ClusterID)
	record := m.sight.Record
	record.Phase, record.Epoch, record.Nonce, record.ClusterID = leases.PhaseFormed, m.sight.Record.Order().Epoch, m.attempt.Nonce, cluster
	record.Lineage = leases.LineageOf(record.Epoch, record.Nonce)
	id := uint64(1000 + w.nonces)
	var writes []int
	if m.there {
		writes = slices.Clone(w.groups[m.group].writes[:m.index])
	}
	w.groups = append(w.groups, lostGroup{cluster: cluster, epoch: record.Epoch, voters: map[uint64]int{id: k}, writes: writes})
	cfg := w.config(k)
	m.built, m.buildOf, m.step = start.IdentityFileOf(&cfg, record, m.lease, cluster, id), len(w.groups)-1, lostForm
}

// form is the commit point.
func (w *lostWorld) form(k int) {
	m := &w.members[k]
	if !m.api {
		m.step = lostForm
		return
	}
	record, version := w.record, w.version
	if w.mutant&mutFiresTwice != 0 { // what it read when it claimed
		record = m.sight.Record
		record, _ = record.Claimed(m.attempt)
	}
	formed, err := record.Reformed(m.attempt, leases.Recovered{Epoch: m.built.Epoch, Mode: leases.RecoverSurvivor, Member: names[k]})
	if err != nil || !w.there {
		return
	}
	order := *record.Order()
	if !w.excused {
		w.checkFormed(k, order)
	}
	w.newest = m.buildOf
	if !w.update(version, formed, nil) {
		w.violate("the model cannot record %+v", formed)
	}
	w.say("%s forms epoch %d", names[k], m.built.Epoch)
}

// checkFormed compares the new raft group with what the others hold: no acknowledged disk has more, and no quorum of the old
// raft group can serve.
func (w *lostWorld) checkFormed(k int, order leases.Recovery) {
	m := &w.members[k]
	if w.groups[w.newest].epoch >= m.built.Epoch {
		w.violate("epoch %d is formed after epoch %d", m.built.Epoch, w.groups[w.newest].epoch)
	}
	for j := range w.members {
		if o := &w.members[j]; o.there && o.group == m.group && o.index > len(w.groups[m.buildOf].writes) && o.lease.Disk != nil && o.lease.Disk.Order == order.Name() {
			w.violate("%s is chosen, and the disk of %s has more", names[k], names[j])
		}
	}
	if has := int64(len(w.groups[m.buildOf].writes)); !order.Unmeasured && has < order.Known-order.Revisions {
		w.violate("%s has %d writes, and the order permits the loss of %d of %d", names[k], has, order.Revisions, order.Known)
	}
	// What is away can come back, and must not be a quorum then.
	open := 0
	for id, j := range w.groups[w.newest].voters {
		if o := &w.members[j]; !o.gone && o.there && o.group == w.newest && uint64(o.identity.MemberID) == id && o.identity.Prepared < order.Epoch {
			open++
		}
	}
	if open >= membership.Quorum(len(w.groups[w.newest].voters)) {
		w.violate("epoch %d is formed while %d voters of the raft group before are not fenced", m.built.Epoch, open)
	}
}

// rejoin takes a member into the raft group g: its data is kept aside, and it votes under a new ID.
func (w *lostWorld) rejoin(k, g int) {
	m := &w.members[k]
	w.nonces++
	id := uint64(1000 + w.nonces)
	voters := map[uint64]int{id: k}
	for old, j := range w.groups[g].voters {
		if j != k {
			voters[old] = j
		}
	}
	w.groups[g].voters = voters
	cfg := w.config(k)
	m.identity = start.IdentityFileOf(&cfg, m.sight.Record, m.lease, w.groups[g].cluster, id)
	m.there, m.group, m.index, m.run, m.built = true, g, len(w.groups[g].writes), true, datadir.IdentityFile{}
	if w.there && w.record.ClusterID == w.groups[g].cluster {
		list := leases.MemberList{}
		for id, j := range voters {
			list.Members = append(list.Members, leases.ListedMember{ID: leases.FormatID(id), Name: names[j], PeerURL: peerURLs[j][0]})
		}
		slices.SortFunc(list.Members, func(a, b leases.ListedMember) int { return strings.Compare(a.ID, b.ID) })
		w.record.MemberList = &list
		w.version++
	}
}

// observe is what a druid sees now.
func (w *lostWorld) observe() policy.Observed {
	o := policy.Observed{RecordState: policy.RecordAbsent, LeaderLease: policy.LeaseOurs, Budget: policy.ObjectForeign, SeedStuck: rules.No}
	if w.there {
		o.Record = w.record
		o.RecordState = map[leases.Phase]policy.RecordState{leases.PhaseFormed: policy.RecordFormed, leases.PhaseRecovering: policy.RecordRecovering}[w.record.Phase]
	}
	for k := range w.members {
		m := &w.members[k]
		pm := policy.Member{
			Name: names[k], Listed: true, Lease: policy.LeaseOurs, Readable: true, Reports: m.lease, Liveness: leases.Stale, Renewed: time.Unix(1, 0),
			Claim: policy.ClaimPresent, ClaimUID: uids[k], Pod: policy.PodLive, PodUID: uids[k], Agent: policy.AgentCurrent, Volume: policy.VolumeLocal,
		}
		if m.run && m.on && m.api && m.net {
			if _, ok := w.quorum(m.group); ok {
				pm.Liveness, pm.EtcdReady = leases.Live, true
			}
		}
		if !m.on || !m.api {
			pm.NodeLost, pm.Node = true, policy.NodeAway
		}
		if m.gone {
			pm.Node = policy.NodeOutOfService
		}
		if w.mutant&mutAwayIsLost != 0 && pm.NodeLost {
			pm.Claim, pm.Pod = policy.ClaimAbsent, policy.PodAbsent
		}
		if claim := pm.Reports.Disk; w.mutant&mutUnheard != 0 && o.Record.Order() != nil {
			heard := leases.Claim{Pod: uids[k], Volume: m.lease.VolumeUID, State: leases.DiskEmpty, Orders: true}
			if heard.Order = o.Record.Order().Name(); claim == nil && names[k] != o.Record.Order().Chosen || claim != nil && claim.State == leases.DiskEmpty {
				pm.Reports.Disk = &heard
			}
		}
		o.Members = append(o.Members, pm)
	}
	d := w.desired()
	o.QuorumOverdue = policy.QuorumLost(d, o)
	return o
}

func (w *lostWorld) desired() policy.Desired {
	none := int64(0)
	d := policy.Desired{Replicas: 3, ClusterID: w.groups[0].cluster, Epoch: 1}
	d.Recovery = policy.RecoveryWish{MaxRevisions: &none, Approved: w.approved, Cluster: clusterUID, Namespace: "n", Name: "c"}
	d.ClusterID, d.Epoch = w.groups[w.newest].cluster, w.groups[w.newest].epoch
	for k := range w.members {
		d.Known = append(d.Known, names[k])
	}
	return d
}

// plan is the next step of a druid: it looks, confirms its step by a live read, and writes.
func (w *lostWorld) plan(di int) bool {
	d := &w.druids[di]
	if d.step == nil {
		d.seen = w.observe()
		for _, step := range policy.Steps(policy.Evaluate(w.desired(), d.seen)) {
			if ordersRecord(step.Kind) {
				d.step = &step
				d.version = 0
				return true
			}
		}
		return false
	}
	if d.version == 0 {
		again := policy.Steps(policy.Evaluate(w.desired(), w.observe()))
		at := slices.IndexFunc(again, d.step.Same)
		if at < 0 {
			d.step = nil
			return true
		}
		d.step, d.live, d.version = &again[at], w.observe(), w.version+1
		return true
	}
	step, version := *d.step, d.version-1
	d.step = nil
	if w.mutant&mutLateRelease != 0 && step.Kind == policy.ReleaseRecovery {
		version = w.version
	} else if version != w.version {
		return true
	}
	return w.order(step, d.live, version)
}

func ordersRecord(kind policy.Kind) bool {
	return slices.Contains([]policy.Kind{policy.PrepareRecovery, policy.ExecuteRecovery, policy.ReleaseRecovery, policy.CreateRecord, policy.UpdateRecord}, kind)
}

func (w *lostWorld) order(step policy.Step, seen policy.Observed, version int) bool {
	switch {
	case step.Kind == policy.CreateRecord && !w.there:
		w.there, w.record = true, *step.Record
		w.version++
	case step.Kind == policy.UpdateRecord && step.Record != nil && w.there:
		restored := *step.Record
		restored.Released = w.record.Released
		w.record = restored
		w.version++
	case step.Kind == policy.CreateRecord, step.Kind == policy.UpdateRecord:
		return false
	default:
		w.nonces++
		changed, ok := step.ChangeRecovery(seen.Record, fmt.Sprintf("o%d", w.nonces))
		if !ok || !w.update(version, changed, nil) {
			return false
		}
	}
	w.say("druid: %s by %s", step.Kind, step.Rule)
	return true
}
