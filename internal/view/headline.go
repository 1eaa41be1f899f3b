package view

import (
	"github.com/etcd-druid/druid/internal/rules"
)

// State is the worst that is known about an EtcdCluster, in one word.
type State string

// The states, the worst first. A list of EtcdClusters has this order.
const (
	StateQuorumLost      State = "QuorumLost"
	StateBootstrapFailed State = "BootstrapFailed"
	StateStatusOutdated  State = "StatusOutdated"
	StateUnknown         State = "Unknown"
	StateDegraded        State = "Degraded"
	StateForming         State = "Forming"
	StateResuming        State = "Resuming"
	StateBackupsFailing  State = "BackupsFailing"
	StateNotSecure       State = "NotSecure"
	StateMembersNotReady State = "MembersNotReady"
	StateChangeBlocked   State = "ChangeBlocked"
	StateHandsOff        State = "HandsOff"
	StateNotAccepted     State = "NotAccepted"
	StatePartlyUnknown   State = "PartlyUnknown"
	StateClientsCutOff   State = "ClientsCutOff"
	StatePaused          State = "Paused"
	StateChanging        State = "Changing"
	StateServing         State = "Serving"
)

// States are all states, the worst first.
var States = []State{
	StateQuorumLost, StateBootstrapFailed, StateStatusOutdated, StateUnknown, StateDegraded, StateForming, StateResuming,
	StateBackupsFailing, StateNotSecure, StateMembersNotReady, StateChangeBlocked, StateHandsOff, StateNotAccepted, StatePartlyUnknown,
	StateClientsCutOff, StatePaused, StateChanging, StateServing,
}

// Health says whether an EtcdCluster is as its spec requires.
type Health string

// The healths.
const (
	// Well: the cluster is as its spec requires, or becomes so while all members are ready.
	Well Health = "Well"
	// NotWell: something is wrong, or the cluster does not serve yet.
	NotWell Health = "NotWell"
	// Unclear: too little is known.
	Unclear Health = "Unknown"
)

// Headline is a state and its health.
type Headline struct {
	State  State  `fact:"state"`
	Health Health `fact:"health"`
}

// serving is what condition Ready says.
type serving uint8

const (
	servingYes      serving = 1 << iota // a quorum serves clients
	servingCutOff                       // a quorum serves, and the spec cuts clients off
	servingLost                         // the voters that serve are no quorum
	servingForming                      // the cluster has not formed
	servingPaused                       // spec.replicas is 0
	servingResuming                     // it was 0, and the member starts
	servingUnclear                      // druid does not know
	servingUnseen                       // druid never wrote the status
)

func (s serving) String() string {
	return rules.Word(s, "a quorum serves", "clients cut off", "quorum lost", "forming", "paused", "resuming", "unknown", "no status")
}

// renewals says whether the agents of a quorum renew their Leases.
type renewals uint8

const (
	renewalsAll     renewals = 1 << iota // all voters renew
	renewalsQuorum                       // a quorum renews
	renewalsSilent                       // fewer renew
	renewalsUnknown                      // the Leases were not read, or name no voter
)

func (r renewals) String() string {
	return rules.Word(r, "by all voters", "by a quorum", "by fewer", "unknown")
}

// change is what condition Progressing says.
type change uint8

const (
	changeNone     change = 1 << iota // the cluster matches its spec
	changeMoving                      // druid or an agent works towards the spec, or has not accepted it yet
	changeStopped                     // a change waits for a user, or its deadline has passed
	changeHandsOff                    // an annotation keeps druid off the cluster
	changeUnknown                     // the status does not say
)

func (c change) String() string {
	return rules.Word(c, "none", "under way", "stopped", "hands off", "unknown")
}

// headlineFacts are the complete input of the headline.
type headlineFacts struct {
	serving  serving      `fact:"Ready"`
	renewals renewals     `fact:"Leases renewed"`
	degraded rules.Answer `fact:"Degraded"`
	members  rules.Answer `fact:"all members ready"`
	change   change       `fact:"change"`
	backups  rules.Answer `fact:"backups good"`
	secure   rules.Answer `fact:"certificates and users good"`
}

// headlines is the complete policy. The first match wins.
var headlines = rules.New(Headline{StateUnknown, Unclear}, []rules.Row[headlineFacts, Headline]{
	{Name: "not-accepted", When: headlineFacts{serving: servingUnseen}, Verdict: Headline{StateNotAccepted, Unclear},
		Why: "druid has not written a status yet: is it running?"},
	{Name: "quorum-lost", When: headlineFacts{serving: servingLost}, Verdict: Headline{StateQuorumLost, NotWell}, Why: "etcd refuses all writes"},
	{Name: "bootstrap-failed", When: headlineFacts{serving: servingForming, change: changeStopped},
		Verdict: Headline{StateBootstrapFailed, NotWell}, Why: "the cluster did not form before its deadline, and druid stopped"},
	{Name: "status-outdated", When: headlineFacts{serving: servingYes | servingCutOff, renewals: renewalsSilent},
		Verdict: Headline{StateStatusOutdated, Unclear}, Why: "the status says that a quorum serves, and the agents of a quorum do not renew their Leases"},
	{Name: "unknown", When: headlineFacts{serving: servingUnclear}, Verdict: Headline{StateUnknown, Unclear}, Why: "druid does not know whether a quorum serves"},
	{Name: "degraded", When: headlineFacts{degraded: rules.Yes}, Verdict: Headline{StateDegraded, NotWell}, Why: "the condition Degraded names the problem"},
	{Name: "paused", When: headlineFacts{serving: servingPaused}, Verdict: Headline{StatePaused, Well}, Why: "the spec requires that no member runs"},
	{Name: "forming", When: headlineFacts{serving: servingForming}, Verdict: Headline{StateForming, NotWell}, Why: "the cluster does not serve yet"},
	{Name: "resuming", When: headlineFacts{serving: servingResuming}, Verdict: Headline{StateResuming, NotWell}, Why: "the cluster does not serve yet"},
	{Name: "backups-failing", When: headlineFacts{backups: rules.No}, Verdict: Headline{StateBackupsFailing, NotWell}, Why: "a disaster now would lose writes"},
	{Name: "not-secure", When: headlineFacts{secure: rules.No}, Verdict: Headline{StateNotSecure, NotWell},
		Why: "a certificate, a user or a role is not as the spec requires"},
	{Name: "members-not-ready", When: headlineFacts{members: rules.No}, Verdict: Headline{StateMembersNotReady, NotWell},
		Why: "the cluster survives fewer failures than it should"},
	{Name: "change-blocked", When: headlineFacts{change: changeStopped}, Verdict: Headline{StateChangeBlocked, NotWell},
		Why: "a change of the spec does not continue by itself"},
	{Name: "hands-off", When: headlineFacts{change: changeHandsOff}, Verdict: Headline{StateHandsOff, NotWell},
		Why: "an annotation keeps druid off the cluster, so that nothing is repaired"},
	{Name: "degraded-unknown", When: headlineFacts{degraded: rules.Unknown}, Verdict: Headline{StatePartlyUnknown, Unclear},
		Why: "the status does not say whether there is a problem"},
	{Name: "members-unknown", When: headlineFacts{members: rules.Unknown}, Verdict: Headline{StatePartlyUnknown, Unclear},
		Why: "of a member it is not known whether it is ready"},
	{Name: "member-silent", When: headlineFacts{serving: servingYes | servingCutOff, renewals: renewalsQuorum},
		Verdict: Headline{StatePartlyUnknown, Unclear}, Why: "the agent of a voter does not renew its Lease, and the status says that all members are ready"},
	{Name: "backups-unknown", When: headlineFacts{backups: rules.Unknown}, Verdict: Headline{StatePartlyUnknown, Unclear},
		Why: "it is not known whether backups succeed"},
	{Name: "secure-unknown", When: headlineFacts{secure: rules.Unknown}, Verdict: Headline{StatePartlyUnknown, Unclear},
		Why: "certificates or users are not reported yet"},
	{Name: "change-unknown", When: headlineFacts{change: changeUnknown}, Verdict: Headline{StatePartlyUnknown, Unclear},
		Why: "the status does not say whether the cluster matches its spec"},
	{Name: "clients-cut-off", When: headlineFacts{serving: servingCutOff}, Verdict: Headline{StateClientsCutOff, Well},
		Why: "the spec requires that no client is served"},
	{Name: "changing", When: headlineFacts{change: changeMoving}, Verdict: Headline{StateChanging, Well}, Why: "all members are ready, and a change is under way"},
	{Name: "serving", When: headlineFacts{serving: servingYes}, Verdict: Headline{StateServing, Well}, Why: "the cluster is as its spec requires"},
})
