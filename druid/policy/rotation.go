package policy

import (
	"slices"
	"strings"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// The facts about the replacement of the certificate authority of a plane.
type (
	// trustPlan says which authorities the status lists.
	trustPlan uint8
	// delivery compares the Secrets with that list.
	delivery uint8
	// usage compares the members with that list.
	usage uint8
	// starting says whether an etcd of the cluster can have read an authority.
	starting uint8
)

const (
	startingNone   starting = 1 << iota // no member has claimed the first start, and none reports a certificate
	startingBegun                       // etcd can have been started, or it is not known
	startingFormed                      // the cluster has formed
)

func (s starting) String() string { return rules.Word(s, "never started", "starts", "formed") }

const (
	trustNone      trustPlan = 1 << iota // no authority is known
	trustOne                             // only the one that signs
	trustCandidate                       // one that has signed nothing is trusted too
	trustOld                             // one that signs no more is trusted too
)

func (p trustPlan) String() string {
	return rules.Word(p, "none", "one", "and the next", "and the old")
}

const (
	deliveryUnread  delivery = 1 << iota // the Secret of the members could not be read, or that of a client for which there is time
	deliveryNone                         // the Secret of the members has other authorities, or other certificates than the authority that signs issues
	deliveryMembers                      // that of the members has them, and that of a client does not
	deliveryAll
)

func (d delivery) String() string {
	return rules.Word(d, "unread", "not delivered", "delivered to members", "delivered to all")
}

const (
	runningUnknown usage = 1 << iota // a member has just started, does not renew its Lease, or reports nothing
	runningOther                     // a member differs
	runningAll
)

func (r usage) String() string { return rules.Word(r, "not known", "differ", "all") }

// rotationFacts is the complete input of rotationRows.
type rotationFacts struct {
	formed    starting       `fact:"cluster"`
	trusted   trustPlan      `fact:"trusted"`                           // the authorities in the status
	signer    AuthorityState `fact:"authority that signs"`              // its Secret
	candidate AuthorityState `fact:"next authority"`                    // its Secret
	due       rules.YesNo    `fact:"a third of its lifetime is left"`   // of the authority that signs
	requested rules.YesNo    `fact:"annotation has a new value"`        // which names the plane
	room      rules.YesNo    `fact:"room for an authority"`             // in the list of those that are trusted
	secrets   delivery       `fact:"trust and certificates"`            // what the Secrets contain
	runs      usage          `fact:"members started with these"`        // every etcd was started with exactly the trusted authorities
	leaves    usage          `fact:"members use its certificates"`      // of the authority that signs
	held      rules.YesNo    `fact:"clients had their time"`            // since their Secrets have what the phase gives them
	urgent    rules.YesNo    `fact:"the authority or a leaf ends soon"` // so that clients cannot be waited for
}

// rotationVerdict is the next change of the trusted authorities.
type rotationVerdict uint8

const (
	rotationKeep rotationVerdict = 1 << iota
	rotationWait
	// rotationNext makes another authority, and has it trusted.
	rotationNext
	// rotationWithdraw removes an authority that has signed nothing.
	rotationWithdraw
	// rotationBegin makes another authority, and has it alone trusted.
	rotationBegin
	// rotationSwitch lets the next authority sign.
	rotationSwitch
	// rotationDrop removes the authorities that sign no more.
	rotationDrop
)

func (v rotationVerdict) String() string {
	return rules.Word(v, "Keep", "Wait", "Next", "Withdraw", "Begin", "Switch", "Drop")
}

// The rows whose phase differs from that of their verdict.
const (
	ruleHold     = "wait-for-clients"
	ruleHoldOld  = "wait-for-old-certificates"
	ruleTrustNew = "trust-only-new"
	// ruleNoRoom waits for a user.
	ruleNoRoom = "no-room"
)

// rotationRows decide how the certificate authority of a plane is replaced: members and clients trust both, the new one signs, and the old
// one is trusted no more. etcd reads the authorities only when it starts, so that each change of them needs a rolling update.
var rotationRows = rules.New(rotationWait, []rules.Row[rotationFacts, rotationVerdict]{
	{Name: "no-authority", When: rotationFacts{trusted: trustNone}, Verdict: rotationKeep,
		Why: "druid issues the first certificates, or does not know which authority the members trust"},
	{Name: "lost-before-start", When: rotationFacts{formed: startingNone, trusted: trustOne, signer: AuthorityLost, secrets: deliveryNone}, Verdict: rotationBegin,
		Why: "no etcd was started, so that none trusts the lost authority and there is no data"},
	{Name: "not-formed", When: rotationFacts{formed: startingNone | startingBegun}, Verdict: rotationKeep,
		Why: "the members of a cluster that forms get one authority"},
	{Name: "signer-unread", When: rotationFacts{signer: AuthorityUnread}, Verdict: rotationWait,
		Why: "it is not known whether the authority can sign"},
	{Name: "next-unread", When: rotationFacts{trusted: trustCandidate, candidate: AuthorityUnread}, Verdict: rotationWait,
		Why: "it is not known whether the next authority can sign"},
	{Name: "next-lost", When: rotationFacts{trusted: trustCandidate, candidate: AuthorityLost}, Verdict: rotationWithdraw,
		Why: "it can sign nothing, and has signed nothing"},
	{Name: "authority-lost", When: rotationFacts{trusted: trustOne | trustOld, signer: AuthorityLost, room: rules.Yes}, Verdict: rotationNext,
		Why: "druid cannot renew certificates without another authority; those in use stay valid"},
	{Name: ruleNoRoom, When: rotationFacts{trusted: trustOld, signer: AuthorityLost, room: rules.No, secrets: deliveryNone}, Verdict: rotationWait,
		Why: "a certificate of each one that is trusted can be in use, and a Lease has no room for another one"},
	{Name: "authority-due", When: rotationFacts{trusted: trustOne, due: rules.Yes}, Verdict: rotationNext,
		Why: "no certificate outlives its authority"},
	{Name: "authority-requested", When: rotationFacts{trusted: trustOne, requested: rules.Yes}, Verdict: rotationNext,
		Why: "a user requests it"},
	{Name: ruleTrustNew, When: rotationFacts{trusted: trustOne, runs: runningOther}, Verdict: rotationWait,
		Why: "the rolling update restarts the members that trust others too"},
	{Name: "authority-stays", When: rotationFacts{trusted: trustOne}, Verdict: rotationKeep,
		Why: "there is nothing to replace"},
	{Name: "secrets-unread", When: rotationFacts{secrets: deliveryUnread}, Verdict: rotationWait,
		Why: "it is not known what members and clients got"},
	{Name: "distribute-trust", When: rotationFacts{trusted: trustCandidate, secrets: deliveryNone}, Verdict: rotationWait,
		Why: "the members get both authorities first"},
	{Name: "distribute-trust-to-clients", When: rotationFacts{trusted: trustCandidate, secrets: deliveryMembers, urgent: rules.No}, Verdict: rotationWait,
		Why: "a client that does not trust the next authority is cut off when it signs"},
	{Name: "trust-both", When: rotationFacts{trusted: trustCandidate, runs: runningUnknown | runningOther}, Verdict: rotationWait,
		Why: "a member that does not run with both is cut off when the next authority signs"},
	{Name: ruleHold, When: rotationFacts{trusted: trustCandidate, held: rules.No, urgent: rules.No}, Verdict: rotationWait,
		Why: "clients read their Secrets"},
	{Name: "next-signs", When: rotationFacts{trusted: trustCandidate}, Verdict: rotationSwitch,
		Why: "every member runs with both, and clients had their time"},
	{Name: "issue-certificates", When: rotationFacts{trusted: trustOld, secrets: deliveryNone}, Verdict: rotationWait,
		Why: "the members get certificates of the new authority"},
	{Name: "issue-certificates-to-clients", When: rotationFacts{trusted: trustOld, secrets: deliveryMembers, urgent: rules.No}, Verdict: rotationWait,
		Why: "a client with an old certificate is cut off when its authority is trusted no more"},
	{Name: "certificates-come", When: rotationFacts{trusted: trustOld, leaves: runningUnknown | runningOther}, Verdict: rotationWait,
		Why: "a certificate of an old authority is in use"},
	{Name: ruleHoldOld, When: rotationFacts{trusted: trustOld, held: rules.No, urgent: rules.No}, Verdict: rotationWait,
		Why: "clients use their new certificates"},
	{Name: "old-dropped", When: rotationFacts{trusted: trustOld}, Verdict: rotationDrop,
		Why: "no certificate of an old authority is in use"},
})

// rotation is the decision about the authorities of a plane.
type rotation struct {
	rules.Decision[rotationVerdict]

	facts rotationFacts
}

func rotationOf(c Certificates, e Evaluation) rotation {
	f := rotationFacts{
		formed: startingOf(e), trusted: c.plan(), signer: c.Signer, candidate: c.Candidate, due: c.Due, requested: c.Requested,
		room:    rules.YesNoOf(len(c.Trusted) < maxTrusted),
		secrets: c.delivered(), runs: runsOf(c, e.listed), leaves: leavesOf(c, e.listed), held: c.Held, urgent: c.Urgent,
	}
	if e.noOne() {
		f.runs, f.leaves = runningAll, runningAll // the member of a paused cluster starts with what the Secrets have then
	}
	return rotation{rotationRows.Decide(f), f}
}

// startingOf says whether an etcd of the cluster can have read an authority. The seed claims the first start in the record before it starts
// its etcd, and the other members start theirs when the cluster has formed. An agent reports what it starts etcd with. What cannot
// be read can say so.
func startingOf(e Evaluation) starting {
	r := e.Record
	switch {
	case e.RecordState == RecordFormed:
		return startingFormed
	case e.RecordState != RecordForming || r.Executor != "" || r.ClusterID != 0 || r.FormedEpoch != 0 || e.evidence&(evidenceLease|evidenceStatus) != 0:
		return startingBegun
	case slices.ContainsFunc(e.Members, func(m Member) bool {
		return m.Lease == LeaseOurs && (!m.Readable || m.Reports.TLS.Client.Trusted != "" || m.Reports.TLS.Peer.Trusted != "")
	}):
		return startingBegun
	default:
		return startingNone
	}
}

// plan says which authorities are trusted. One that is to sign next comes before those that sign no more: an authority that is lost right
// after the switch is replaced at once.
func (c Certificates) plan() trustPlan {
	i := slices.IndexFunc(c.Trusted, func(a v1alpha1.TLSAuthority) bool { return a.Fingerprint == c.Signing })
	switch {
	case c.Known != AuthorityKnown || i < 0:
		return trustNone
	case i < len(c.Trusted)-1:
		return trustCandidate
	case i > 0:
		return trustOld
	default:
		return trustOne
	}
}

// delivered compares the Secrets with the trusted authorities and, once an old one signs no more, with the one that signs. A Secret
// of another owner and one that does not exist give clients nothing, so that no client can be waited for. Nor is a client waited for whose
// Secret cannot be read, while certificates end soon.
func (c Certificates) delivered() delivery {
	result := deliveryAll
	for i, s := range c.Issued {
		current := s.Trust == TrustSame && (c.plan() != trustOld || s.State&(IssuedCurrent|IssuedDue) != 0)
		switch {
		case s.State == IssuedUnread && (i == 0 || c.Urgent != rules.Yes):
			return deliveryUnread
		case i == 0 && !current:
			result = deliveryNone
		case i > 0 && !current && s.State&(IssuedForeign|IssuedAbsent) == 0 && result == deliveryAll:
			result = deliveryMembers
		}
	}
	return result
}

// Outruns says whether the running etcd of the member was started with other authorities than the plane trusts. A member that has
// just started counts only when its Lease has been renewed since.
func (c Certificates) Outruns(m Member) bool {
	return c.plan() != trustNone && len(c.Issued) > 0 && c.Issued[0].Trust == TrustSame && runsWith(c, m) == runningOther
}

func runsWith(c Certificates, m Member) usage {
	trusted := reportOf(m, c.Plane).Trusted
	if !m.reportsTrust(c.Plane) {
		return runningUnknown
	}
	return runningOf(sameAuthorities(strings.Split(trusted, ","), c.Trusted))
}

func runningOf(same bool) usage {
	if same {
		return runningAll
	}
	return runningOther
}

// sameAuthorities compares without an order.
func sameAuthorities(fingerprints []string, trusted []v1alpha1.TLSAuthority) bool {
	var want []string
	for _, a := range trusted {
		want = append(want, a.Fingerprint)
	}
	slices.Sort(want)
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(fingerprints))), want)
}

func runsOf(c Certificates, listed []Member) usage {
	return worst(listed, func(m Member) usage {
		if c.startsLater(m) {
			return runningAll
		}
		return runsWith(c, m)
	})
}

func leavesOf(c Certificates, listed []Member) usage {
	return worst(listed, func(m Member) usage {
		switch {
		case c.startsLater(m):
			return runningAll
		case !m.Readable || !m.Stable || m.Liveness != leases.Live:
			return runningUnknown
		default:
			return runningOf(reportOf(m, c.Plane).Issuer == c.Signing)
		}
	})
}

// startsLater says whether the member is not waited for, because certificates end soon and no etcd of it can run. Its next Pod starts with
// what the Secret of the members has then.
func (c Certificates) startsLater(m Member) bool {
	return c.Urgent == rules.Yes && m.Pod&(PodAbsent|PodUnscheduled|PodUnstarted|PodEnded) != 0
}

// worst is that of the member about which the least is known.
func worst(listed []Member, of func(Member) usage) usage {
	result := runningAll
	if len(listed) == 0 {
		return runningUnknown
	}
	for _, m := range listed {
		switch of(m) {
		case runningUnknown:
			return runningUnknown
		case runningOther:
			result = runningOther
		default:
		}
	}
	return result
}
