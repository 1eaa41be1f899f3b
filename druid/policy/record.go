package policy

import (
	"slices"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	evidence uint8 // what speaks of an earlier life of the cluster, strongest last
	names    uint8 // the listed names against the replicas
	order    uint8 // what is to be done to the record
)

const (
	evidenceNone   evidence = 1 << iota
	evidenceTraces          // a Lease, claim or Pod of a member exists, or the status lists a member
	evidenceLease           // a member Lease bears an ID
	evidenceStatus          // the status bears the cluster ID
)

func (e evidence) String() string {
	return rules.Word(e, "none", "traces", "lease", "status")
}

const (
	namesNone  names = 1 << iota // none listed, none wanted
	namesFew                     // fewer than replicas
	namesRight                   // as many as replicas
	namesMany                    // more than replicas
)

func (n names) String() string {
	return rules.Word(n, "none", "few", "right", "many")
}

const (
	orderNothing order = 1 << iota
	orderBootstrap
	orderRecreate
	orderRestore
	orderGrow
	orderMoveSeed
	orderRelist
)

func (o order) String() string {
	return rules.Word(o, "Nothing", "Bootstrap", "Recreate", "Restore", "Grow", "MoveSeed", "Relist")
}

// records is the policy for the cluster record. druid creates a record as Forming only if nothing shows that the
// cluster existed before. A record that was deleted is created again as Formed, so that no member forms a second raft
// group.
var records = rules.New(orderNothing, []rules.Row[recordFacts, order]{
	{Name: "record-not-owned", When: recordFacts{record: RecordForeign}, Verdict: orderNothing},
	{Name: "record-unreadable", When: recordFacts{record: RecordUnreadable}, Verdict: orderNothing},
	{Name: "record-behind", When: recordFacts{record: RecordFormed | RecordRecovering, behind: rules.Yes, evidence: evidenceLease | evidenceStatus},
		Verdict: orderRestore},
	{Name: "record-ahead", When: recordFacts{record: RecordFormed, ahead: rules.Yes, evidence: evidenceStatus}, Verdict: orderRestore},
	{Name: "record-recovering", When: recordFacts{record: RecordRecovering}, Verdict: orderNothing},
	{Name: "record-paused", When: recordFacts{record: RecordAbsent, evidence: evidenceNone, names: namesNone}, Verdict: orderNothing},
	{Name: "record-newly-formed", When: recordFacts{record: RecordAbsent, evidence: evidenceNone}, Verdict: orderBootstrap},
	{Name: "record-lost", When: recordFacts{record: RecordAbsent, evidence: evidenceTraces | evidenceLease | evidenceStatus}, Verdict: orderRecreate},
	{Name: "record-rolled-back", When: recordFacts{record: RecordForming, evidence: evidenceStatus}, Verdict: orderRestore},
	{Name: "record-identified", When: recordFacts{record: RecordFormed, known: rules.No, evidence: evidenceLease | evidenceStatus}, Verdict: orderRestore},
	{Name: "names-lost", When: recordFacts{record: RecordFormed, lost: rules.Yes}, Verdict: orderRelist},
	{Name: "scale-up", When: recordFacts{record: RecordForming | RecordFormed, names: namesFew}, Verdict: orderGrow},
	{Name: "seed-stuck", When: recordFacts{record: RecordForming, known: rules.No, stuck: rules.Yes}, Verdict: orderMoveSeed},
	{Name: "scale-down-pending", When: recordFacts{record: RecordForming | RecordFormed, names: namesMany}, Verdict: orderNothing},
	{Name: "record-exists", When: recordFacts{record: RecordForming | RecordFormed}, Verdict: orderNothing},
})

// recordFacts is the complete input of records.
type recordFacts struct {
	record   RecordState
	known    rules.YesNo `fact:"names an ID"` // the record names the cluster ID
	evidence evidence    `fact:"evidence of an earlier bootstrap"`
	names    names       `fact:"names against replicas"`
	stuck    rules.YesNo `fact:"seed stuck"`
	lost     rules.YesNo `fact:"names taken out"` // names were taken out of it by hand
	behind   rules.YesNo `fact:"a later raft group was formed"`
	ahead    rules.YesNo `fact:"no recovery formed the raft group"` // and a quorum serves in another one
}

func recordFactsOf(e Evaluation) recordFacts {
	f := recordFacts{
		record: e.RecordState, known: rules.YesNoOf(e.Record.ClusterID != 0), evidence: e.evidence, stuck: e.SeedStuck,
		lost: rules.YesNoOf(len(lostNames(e.Desired, e.Observed)) > 0),
	}
	latest, epoch := latestGroup(e.Desired, e.Observed)
	f.behind = rules.YesNoOf(epoch > e.Record.FormedEpoch && latest != e.Record.ClusterID && (!recordServes(e.Observed) || statusLater(e.Desired, e.Record)))
	f.ahead = rules.YesNoOf(recordAhead(e.Desired, e.Observed))
	switch listed := len(e.Record.Members); {
	case listed == 0 && e.Replicas == 0:
		f.names = namesNone
	case listed < e.Replicas && !e.Expired && !e.Deleted:
		f.names = namesFew
	case listed <= e.Replicas: // few are right when the time to draw more is over
		f.names = namesRight
	default:
		f.names = namesMany
	}
	// A claimed attempt belongs to its executor: only a seed that claimed nothing may be moved.
	if e.Record.Executor != "" || f.stuck == 0 {
		f.stuck = rules.No
	}
	return f
}

func evidenceOf(d Desired, o Observed) evidence {
	if d.ClusterID != 0 {
		return evidenceStatus
	}
	e := evidenceNone
	if len(d.Known) > 0 {
		e = evidenceTraces
	}
	for _, m := range o.Members {
		switch {
		case m.Lease == LeaseOurs && m.Readable && m.Reports.EverFormed():
			return evidenceLease
		case m.ours():
			e = evidenceTraces
		}
	}
	return e
}

// recreated is the record of a cluster that existed before, from what is known about it. Its phase is Formed, so that
// no member forms a raft group. Without a nonce or a limit of learners no member can join either, until an agent of
// the cluster completes the record from its identity file. The limit is fixed when a raft group is formed, so druid
// never takes it from the spec or from a record that can be older than the group.
func recreated(d Desired, o Observed) leases.Record {
	latest, epoch := latestGroup(d, o)
	r := leases.Record{
		ClusterID: latest,
		Phase:     leases.PhaseFormed,
		Members:   slices.Clone(d.Known),
	}
	if o.RecordState&(RecordFormed|RecordRecovering) != 0 {
		r.MaxLearners, r.Externals, r.Leaving = o.Record.MaxLearners, o.Record.Externals, o.Record.Leaving
	}
	r.Members = append(r.Members, o.Record.Members...)
	for _, m := range o.Members {
		if m.ours() {
			r.Members = append(r.Members, m.Name)
		}
		if m.Lease == LeaseOurs && m.Readable {
			r = withMember(r, m.Reports)
		}
		if latest != 0 {
			r = withMember(r, m.diskGroup(o))
		}
	}
	if epoch > r.Epoch {
		r.Epoch, r.FormedEpoch = epoch, epoch
	}
	slices.Sort(r.Members)
	r.Members = slices.Compact(r.Members)
	return r
}

// latestGroup is the raft group that was formed last, by the status, the Leases and the disk reports, and its epoch, 0 if unknown. An agent
// reports only a raft group that was formed. The status can be older: druid writes it after the record, and can be down. If no
// epoch of the status's raft group is known, a Lease of another one says nothing.
func latestGroup(d Desired, o Observed) (id uint64, epoch uint32) {
	id, epoch = d.ClusterID, d.Epoch
	for _, m := range o.Members {
		if m.Lease == LeaseOurs && m.Readable && m.Reports.ClusterID == id {
			epoch = max(epoch, m.Reports.Epoch)
		}
	}
	for _, m := range o.Members {
		if m.Lease == LeaseOurs && m.Readable && m.Reports.ClusterID != 0 && (id == 0 || epoch > 0 && m.Reports.Epoch > epoch) {
			id, epoch = m.Reports.ClusterID, m.Reports.Epoch
		}
	}
	return laterOnDisk(id, epoch, o)
}

// recordServes says whether a quorum of the listed members serves in the record's raft group. Then no later raft group was formed:
// a recovery forms one only after so many members stopped that no quorum is left. So the Lease of one member, whose agent may be
// compromised, does not move the record to another raft group while the cluster is well. The Leases of members that stopped for
// a recovery count until they expire, and the record waits for that. So do Leases of which druid has not seen a renewal since it
// started: they are stale after their duration.
func recordServes(o Observed) bool {
	listed, serving := o.listed(), 0
	for _, m := range listed {
		if m.reportsVoter() && m.Liveness&(leases.Live|leases.Unknown) != 0 && o.Record.ClusterID != 0 && m.Reports.ClusterID == o.Record.ClusterID {
			serving++
		}
	}
	return serving >= quorum(len(listed)+len(o.Record.Externals))
}

// withMember adds what a member's Lease reports about the raft group with the highest epoch.
func withMember(r leases.Record, says leases.Member) leases.Record {
	if r.ClusterID == 0 {
		r.ClusterID = says.ClusterID
	}
	if says.ClusterID == 0 || says.ClusterID != r.ClusterID || says.Epoch < r.Epoch {
		return r
	}
	r.Epoch, r.FormedEpoch = says.Epoch, says.Epoch
	if says.Lineage != "" {
		r.Lineage = says.Lineage
		// The name of a lineage is <epoch>-<nonce>.
		_, r.Nonce, _ = strings.Cut(says.Lineage, "-")
	}
	return r
}

// successor is the member that replaces a stuck first member: the next one in the order of names whose Pod started.
func successor(o Observed) string {
	listed := o.listed()
	at := slices.IndexFunc(listed, func(m Member) bool { return m.Name == o.Record.Seed })
	for i := range listed {
		if m := listed[(at+1+i)%len(listed)]; m.Pod == PodLive && m.Name != o.Record.Seed {
			return m.Name
		}
	}
	return ""
}

type (
	witness uint8 // what the Lease of a name says
	entry   uint8 // whether the published member list has the name
)

const (
	witnessOwn  witness = 1 << iota // of a member of the record's raft group, which was not removed, as far as its leader listed since
	witnessOut                      // the member was removed, or its name dropped
	witnessMute                     // there is no Lease
	witnessElse                     // of another group or of none, not the cluster's, or it cannot be read
)

func (w witness) String() string {
	return rules.Word(w, "a member of the group", "removed", "there is no Lease", "nothing that counts")
}

const (
	entryThere entry = 1 << iota
	entryMissing
	entryUnknown // no list was published
)

func (e entry) String() string {
	return rules.Word(e, "there", "missing", "not published")
}

// lostVerdict is the decision about a name that the record does not list.
type lostVerdict string

const (
	lostLeave  lostVerdict = "Leave"
	lostRelist lostVerdict = "Relist"
)

// lostRows decide whether a user removed a name from a Formed record. druid removes a name from the record only after
// the Lease of the member reports the removal, and it deletes the Lease last. This policy never removes a name: a name
// that was just chosen has no Lease yet.
var lostRows = rules.New(lostLeave, []rules.Row[lostFacts, lostVerdict]{
	{Name: "removed-on-request", When: lostFacts{witness: witnessOut}, Verdict: lostLeave},
	{Name: "no-evidence", When: lostFacts{witness: witnessElse}, Verdict: lostLeave},
	{Name: "member-of-the-group", When: lostFacts{witness: witnessOwn, entry: entryThere | entryUnknown}, Verdict: lostRelist},
	{Name: "slot-names-it", When: lostFacts{witness: witnessOwn, entry: entryMissing, slot: rules.Yes}, Verdict: lostRelist},
	{Name: "renews-its-lease", When: lostFacts{witness: witnessOwn, entry: entryMissing, slot: rules.No, live: rules.Yes}, Verdict: lostRelist},
	{Name: "all-names-lost", When: lostFacts{witness: witnessOwn | witnessMute, body: rules.Yes, empty: rules.Yes}, Verdict: lostRelist},
	{Name: "not-verified", When: lostFacts{witness: witnessOwn, entry: entryMissing, slot: rules.No, live: rules.No}, Verdict: lostLeave},
	{Name: "lease-lost-too", When: lostFacts{witness: witnessMute, entry: entryThere, body: rules.Yes}, Verdict: lostRelist},
	{Name: "no-lease", When: lostFacts{witness: witnessMute}, Verdict: lostLeave},
})

// lostFacts is the complete input of lostRows.
type lostFacts struct {
	witness witness     `fact:"its Lease says"`
	entry   entry       `fact:"in the member list"`
	slot    rules.YesNo `fact:"a slot names it"`
	live    rules.YesNo `fact:"its Lease is renewed"`
	body    rules.YesNo `fact:"an object has the name"` // a Lease, a Pod or a claim of the cluster bears it
	empty   rules.YesNo `fact:"the record is empty"`    // the record lists no names at all
}

// lostNames are the names that a user removed from the record. druid does not restore a name of an EtcdCluster that is
// being deleted, or whose members all leave.
func lostNames(d Desired, o Observed) (names []string) {
	if o.RecordState != RecordFormed || o.Record.ClusterID == 0 || o.Record.Leaving || d.Deleted {
		return nil
	}
	for _, m := range o.Members {
		if m.Listed {
			continue
		}
		if lostRows.Decide(lostFactsOf(m, o)).Verdict == lostRelist {
			names = append(names, m.Name)
		}
	}
	return names
}

func lostFactsOf(m Member, o Observed) lostFacts {
	r := o.Record
	return lostFacts{
		witness: witnessOf(m, o), entry: publishedEntry(m, o), live: rules.YesNoOf(m.Lease == LeaseOurs && m.Liveness == leases.Live),
		slot:  rules.YesNoOf(r.PendingRemoval != nil && r.PendingRemoval.Member == m.Name || r.Replacing != nil && r.Replacing.Member == m.Name),
		body:  rules.YesNoOf(m.ours()),
		empty: rules.YesNoOf(len(r.Members) == 0),
	}
}

// publishedEntry says whether the list that the leader's agent published has the name.
func publishedEntry(m Member, o Observed) entry {
	switch list := o.Record.MemberList; {
	case list == nil:
		return entryUnknown
	case slices.ContainsFunc(list.Members, func(e leases.ListedMember) bool {
		return e.Name == m.Name || leases.MemberOfURL(e.PeerURL) == m.Name
	}):
		return entryThere
	default:
		return entryMissing
	}
}

func witnessOf(m Member, o Observed) witness {
	switch {
	case m.Lease == LeaseAbsent:
		return witnessMute
	case removalAckOf(m, o) == removalAckListed && listedSince(m, o):
		return witnessOwn
	case removalAckOf(m, o) != removalAckNone:
		return witnessOut
	case m.Lease != LeaseOurs || !m.Readable || m.Reports.Removal.State == leases.RemovalUnreadable || m.Reports.Removal.State == leases.RemovalDone,
		!m.Reports.EverFormed() || m.Reports.ClusterID != o.Record.ClusterID:
		return witnessElse
	default:
		return witnessOwn
	}
}

// listedSince says whether the leader's agent published that the member is listed, at the raft position of its acknowledgement or later.
// Such an acknowledgement is forged. The agent publishes the list without the member shortly after a true one.
func listedSince(m Member, o Observed) bool {
	done, list := m.Reports.Removal, o.Record.MemberList
	return list.RaftTerm > done.RaftTerm || list.RaftTerm == done.RaftTerm && list.RaftIndex >= done.RaftIndex
}
