package start

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

type (
	peerListing   uint8 // how the answer of a quorum lists this member
	schemeVerdict uint8 // how the member that starts listens to its peers
)

const (
	peerVoter    peerListing = 1 << iota
	peerLearner              // a learner that has data
	peerNoQuorum             // no quorum answers
)

func (p peerListing) String() string { return rules.Word(p, "voter", "learner", "no quorum") }

const (
	schemeKeep   schemeVerdict = 1 << iota // listen as the list says, or without a quorum as the identity file says
	schemeUpdate                           // change the peer URL in the list first
	schemeSwitch                           // listen as the configuration says, and change the list afterwards
	schemeRefuse
)

func (v schemeVerdict) String() string { return rules.Word(v, "Keep", "Update", "Switch", "Refuse") }

// schemeFacts is the complete input of schemeRows. The present scheme is the one in the member list of a quorum, or without a quorum
// the one in the identity file.
type schemeFacts struct {
	listing peerListing  `fact:"listed as"`
	able    rules.YesNo  `fact:"has the certificates for the present scheme"`
	differs rules.YesNo  `fact:"the configuration has another scheme"`
	lease   rules.Answer `fact:"the Lease is this Pod's"`
	few     rules.Answer `fact:"at most two voters"`
}

// schemeRows decide with which scheme a member that resumes listens to its peers. Peers dial the URL in the member list, so a member
// listens as the list says. The list is changed while etcd is stopped. One of two voters has no quorum then, so it changes the list
// after the start: until then, its own connections carry the messages of both.
var schemeRows = rules.New(schemeKeep, []rules.Row[schemeFacts, schemeVerdict]{
	{Name: "no-peer-certificates", When: schemeFacts{able: rules.No}, Verdict: schemeRefuse,
		Why: "peers connect to this member with TLS, and its Pod has no certificates for peers; set spec.tls.peer again"},
	{Name: "scheme-stays", When: schemeFacts{differs: rules.No}, Verdict: schemeKeep,
		Why: "peers connect as the configuration says"},
	{Name: "learner-keeps", When: schemeFacts{listing: peerLearner}, Verdict: schemeKeep,
		Why: "a change of its URL would make a learner a voter"},
	{Name: "update-listed", When: schemeFacts{listing: peerVoter, lease: rules.Yes}, Verdict: schemeUpdate,
		Why: "the other voters are a quorum, and peers cannot connect while etcd is stopped"},
	{Name: "lease-names-other-pod", When: schemeFacts{listing: peerVoter}, Verdict: schemeKeep,
		Why: "only the Pod that the Lease names changes the member list"},
	{Name: "switch-first", When: schemeFacts{listing: peerNoQuorum, lease: rules.Yes, few: rules.Yes}, Verdict: schemeSwitch,
		Why: "without this member there is no quorum that could change the list"},
	{Name: "no-quorum-keeps", When: schemeFacts{listing: peerNoQuorum}, Verdict: schemeKeep,
		Why: "the others connect as they did before"},
})

// schemeOf returns the scheme as the identity file and the Lease have it.
func schemeOf(secure bool) string {
	if secure {
		return leases.SchemeSecure
	}
	return leases.SchemePlain
}

// urlOf returns the peer URL of this member under a scheme.
func (b *Bootstrapper) urlOf(scheme string) string {
	return transport.URL(scheme == leases.SchemeSecure, b.host(b.cfg.Member), b.cfg.PeerPort)
}

// listedScheme returns the scheme under which the entry lists this member, or "".
func (b *Bootstrapper) listedScheme(entry membership.Member) string {
	for _, scheme := range []string{leases.SchemePlain, leases.SchemeSecure} {
		if slices.Contains(entry.PeerURLs, b.urlOf(scheme)) {
			return scheme
		}
	}
	return ""
}

// withScheme returns the identity with a scheme. Data from before there was one in it is as the configuration says.
func withScheme(cfg *config.Config, identityFile datadir.IdentityFile) datadir.IdentityFile {
	if identityFile.PeerScheme == "" {
		identityFile.PeerScheme = schemeOf(cfg.PeersSecure())
	}
	return identityFile
}

// bindScheme decides how etcd listens to its peers. It returns the identity to start with, or ok false if it changed the member
// list and must observe again.
func (b *Bootstrapper) bindScheme(ctx context.Context, o *observation) (identityFile datadir.IdentityFile, ok bool, err error) {
	identityFile = withScheme(&b.cfg, o.volume.identityFile)
	wanted, present := schemeOf(b.cfg.PeersSecure()), identityFile.PeerScheme
	if listed := b.listedScheme(o.entry); o.Listed != NoQuorum && listed != "" {
		present = listed
	}
	d := schemeRows.Decide(b.schemeFacts(ctx, o, present, wanted))
	switch d.Verdict {
	case schemeRefuse:
		return identityFile, false, errors.New(d.Why)
	case schemeUpdate:
		b.log.InfoContext(ctx, "peer URL decided", "rule", d.Rule, "from", present, "to", wanted)
		return identityFile, false, b.updatePeerURL(ctx, o.view.Endpoint, o.entry.ID, wanted)
	case schemeKeep:
	case schemeSwitch:
		b.log.InfoContext(ctx, "peer URL decided", "rule", d.Rule, "from", present, "to", wanted)
		present = wanted
	}
	identityFile.PeerScheme = present
	if o.volume.identityFile == identityFile {
		return identityFile, true, nil
	}
	crash.Before("identity-file-scheme")
	err = datadir.WriteIdentityFile(b.cfg.VolumePath, identityFile)
	crash.After("identity-file-scheme")
	return identityFile, err == nil, err
}

func (b *Bootstrapper) schemeFacts(ctx context.Context, o *observation, present, wanted string) schemeFacts {
	f := schemeFacts{
		listing: peerVoter, able: rules.YesNoOf(present == leases.SchemePlain || b.cfg.PeerTLS != config.TLSOff),
		differs: rules.YesNoOf(present != wanted), lease: rules.Unknown, few: b.fewVoters(o),
	}
	switch {
	case o.Listed == NoQuorum:
		f.listing = peerNoQuorum
	case o.Listed == Learner || o.entry.Learner:
		f.listing = peerLearner
	}
	if f.differs == rules.Yes {
		f.lease = b.leaseIsFresh(ctx)
	}
	return f
}

// fewVoters says whether the raft group has at most two voters, as far as the leader last wrote the member list.
func (b *Bootstrapper) fewVoters(o *observation) rules.Answer {
	record, known := b.knownRecord(o)
	if !known || record.MemberList == nil {
		return rules.Unknown
	}
	voters := slices.DeleteFunc(slices.Clone(record.MemberList.Members), func(m leases.ListedMember) bool { return m.Learner })
	return rules.AnswerOf(len(voters) <= 2)
}

// updatePeerURL changes the scheme of the own peer URL in the member list. The member keeps its ID.
func (b *Bootstrapper) updatePeerURL(ctx context.Context, endpoint string, id uint64, scheme string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, done, err := b.dial(ctx, endpoint)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	crash.Before("update-peer-url")
	err = membership.UpdatePeerURL(ctx, client, id, b.urlOf(scheme))
	crash.After("update-peer-url")
	if err != nil {
		return err
	}
	b.log.InfoContext(ctx, "peer URL changed", "memberID", leases.FormatID(id), "url", b.urlOf(scheme))
	return nil
}

// listedAsItListens makes the member list say how this etcd listens to its peers. It differs after the start of one of at most two
// voters, and after a start without a quorum.
func (s *finisher) listedAsItListens(ctx context.Context) (bool, error) {
	view, err := membership.Observe(ctx, s.b.dial, membership.Query{
		Endpoints: []string{s.b.local()}, ClusterID: uint64(s.identityFile.ClusterID), Timeout: endpointTimeout,
	})
	if err != nil {
		return false, err
	}
	entry, ok := view.Member(uint64(s.identityFile.MemberID))
	listed := s.b.listedScheme(entry)
	switch {
	case !ok || entry.Learner:
		return false, fmt.Errorf("member %x is not listed as a voter", uint64(s.identityFile.MemberID))
	case listed == s.identityFile.PeerScheme || listed == "":
		return true, nil
	case s.b.leaseIsFresh(ctx) != rules.Yes:
		return false, errors.New("change the peer URL: the member Lease does not name this Pod, or cannot be read")
	}
	return false, s.b.updatePeerURL(ctx, view.Endpoint, entry.ID, s.identityFile.PeerScheme)
}

// leaseIsFresh reads the member Lease, because only the Pod that it names changes the member list (R1).
func (b *Bootstrapper) leaseIsFresh(ctx context.Context) rules.Answer {
	return freshness(b.cfg, b.askLease(ctx))
}

// askLease reads the member Lease now.
func (b *Bootstrapper) askLease(ctx context.Context) (own ownLease) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	own.member, own.err = b.store.Member(ctx, b.cfg.Member)
	return own
}

// freshness says whether a Lease that was read names this Pod, and does not remove the member.
func freshness(cfg config.Config, own ownLease) rules.Answer {
	switch lease, _ := classifyLease(cfg, own); lease {
	case Fresh:
		return rules.Yes
	case LeaseUnread:
		return rules.Unknown
	default:
		return rules.No
	}
}
