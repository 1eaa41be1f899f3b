package start

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// act carries out the decision. It makes at most one irreversible call, and repeating that call changes nothing. It
// returns the order to start etcd, or nil if the agent must observe again first.
func (b *Bootstrapper) act(ctx context.Context, d Decision, o *observation) (*launch.Order, error) {
	// Every other step writes, and so fails on a full volume.
	if err := b.makeRoom(ctx, d.Mode, o); err != nil && ctx.Err() == nil {
		b.log.WarnContext(ctx, "quarantined data not deleted before the start of etcd", "err", err)
	}
	switch d.Mode {
	case ModeResume:
		return b.resume(ctx, o)
	case ModeNew:
		return b.form(ctx, o)
	case ModeAdopt:
		return b.adopt(ctx, o)
	case ModeJoin:
		return b.join(ctx, o)
	case ModeReplaceSelf:
		return nil, b.replaceSelf(ctx, o)
	case ModeRejoin:
		return nil, b.quarantine(ctx, o, o.quarantineReason("removed"))
	case ModeRestore:
		return b.restore(ctx, d, o)
	case ModePrepare:
		return nil, b.prepare(ctx, o)
	case ModeRecover:
		return nil, b.recover(ctx, d, o)
	case ModePlace:
		return nil, b.place(ctx, o)
	default:
		return nil, nil
	}
}

// order starts etcd on a volume whose identity file is written.
func (b *Bootstrapper) order(identityFile datadir.IdentityFile, s start) (*launch.Order, error) {
	if err := b.certs.Begin(); err != nil {
		return nil, err
	}
	s.skipPeerNames = b.certs.SkipPeerNames()
	args, err := argv(b.cfg, b.urlOf(identityFile.PeerScheme), b.host(b.cfg.Member), s)
	if err != nil {
		return nil, err
	}
	b.forgetVolume() // etcd changes it from now on
	b.acknowledged, b.withdrawn = "", false
	b.comparedStart.Store(!s.unchecked)
	b.setIdentity(identityFile)
	return &launch.Order{Version: launch.ProtocolVersion, Kind: launch.OrderStart, Path: b.cfg.EtcdPath, Argv: args}, nil
}

// quarantine quarantines the data on the volume to make place for new data.
func (b *Bootstrapper) quarantine(ctx context.Context, o *observation, reason string) error {
	return b.quarantineAs(ctx, o, datadir.ContentOf(reason, o.volume.report))
}

// quarantineAs quarantines the data on the volume with a description. Empty data can have leftover files, which are quarantined too.
func (b *Bootstrapper) quarantineAs(ctx context.Context, o *observation, content datadir.Content) error {
	if o.volume.report.State == datadir.Empty && !o.volume.report.Leftover {
		return nil
	}
	content.Lineage, content.Moved = o.volume.identityFile.Lineage, b.Clocks().Later().UTC().Truncate(time.Second)
	name, err := datadir.Quarantine(b.cfg.VolumePath, content)
	b.forgetVolume()
	if err != nil {
		return err
	}
	b.log.InfoContext(ctx, "data quarantined", "quarantined", name, "data", o.volume.report.String(), "reason", content.Reason)
	return nil
}

// quarantineReason returns the reason for which the data is quarantined: intact for intact data of the present raft group. Data that a
// later raft group replaced can be the only copy of writes, also if it is damaged or went back in time. So can data of a later raft group
// than the record names, because the record went back.
func (o *observation) quarantineReason(intact string) string {
	switch {
	case o.Data == Differing:
		return datadir.ReasonDiffers
	case o.Epoch == Fenced && o.volume.identityFile.Formed, ofLaterGroup(o.volume.identityFile, o.record.record):
		return datadir.ReasonSuperseded
	case o.Data == Intact:
		return intact
	default:
		return o.Data.String()
	}
}

// resumeStagger is the delay between the members of a cluster that restarts completely: slightly more than etcd needs
// until it serves.
const resumeStagger = 700 * time.Millisecond

// stagger prevents a majority from starting at the same moment. The corruption check of etcd asks each peer before it
// serves. It waits 7 s for a peer that has opened its port and does not serve yet. A peer that is absent or serves
// causes no delay. Without a record, the hash of the name replaces the index of the member in the record.
func (b *Bootstrapper) stagger(o *observation) time.Duration {
	if record, ok := b.knownRecord(o); ok {
		return time.Duration(max(0, slices.Index(record.Members, b.cfg.Member))) * resumeStagger
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(b.cfg.Member))
	return time.Duration(hash.Sum32()%resumeSlots) * resumeStagger
}

// resumeSlots bounds the delay of a member that does not know its index.
const resumeSlots = 5

// resume starts etcd on its data. With these flags, etcd cannot form a new cluster even if the data vanishes before
// etcd opens it.
func (b *Bootstrapper) resume(ctx context.Context, o *observation) (*launch.Order, error) {
	if o.volume.identityFile.Prepared > 0 && !b.withdrawn {
		return nil, b.withdraw(ctx) // look again: druid can count the acknowledgement until now
	}
	if o.Listed == NoQuorum && !loop.Sleep(ctx, b.stagger(o)) {
		return nil, context.Cause(ctx)
	}
	identityFile, bound, err := b.bindScheme(ctx, o)
	if err != nil || !bound {
		return nil, err
	}
	if identityFile.Prepared > 0 {
		if err := b.unprepare(ctx, &identityFile); err != nil {
			return nil, err
		}
	}
	if o.unchecked && !b.quorumStillServes(ctx, o) {
		return nil, nil // look again
	}
	b.joining = joining{} // there is a log: whatever we joined as was started, and is never started without it again (R4)
	return b.order(identityFile, start{
		cluster: b.cfg.Member + "=" + b.urlOf(identityFile.PeerScheme), token: identityFile.Token, maxLearners: identityFile.MaxLearners,
		unchecked: o.unchecked,
	})
}

// attempt is a claimed bootstrap.
type attempt struct {
	record              leases.Record
	token, peerURL      string
	memberID, clusterID uint64
}

// cluster is the value of --initial-cluster: a group is formed with one member.
func (a *attempt) cluster(member string) string { return member + "=" + a.peerURL }

// form claims an attempt in the record and starts etcd as the only member of a new cluster. The claim is written
// before any data (R2). A later claim supersedes this attempt, and its data never leaves this volume.
func (b *Bootstrapper) form(ctx context.Context, o *observation) (*launch.Order, error) {
	a, err := b.claim(ctx, o)
	if a == nil || err != nil {
		return nil, err
	}
	if err := b.quarantine(ctx, o, "attempt-lost"); err != nil {
		return nil, err
	}
	identityFile := b.identityFile(o, a.record, a.clusterID, a.memberID)
	crash.Before("identity-file-bootstrap")
	err = datadir.WriteIdentityFile(b.cfg.VolumePath, identityFile)
	crash.After("identity-file-bootstrap")
	if err != nil {
		return nil, err
	}
	return b.order(identityFile, start{
		fresh: true, cluster: a.cluster(b.cfg.Member), token: a.token, maxLearners: a.record.MaxLearners,
	})
}

// claim writes an attempt of this Pod to the record, above the epoch of every lineage that the backup store has of a
// cluster with this name. It returns nil after a conflicting write: the agent must then observe again.
func (b *Bootstrapper) claim(ctx context.Context, o *observation) (*attempt, error) {
	limit, err := b.limitAtBootstrap()
	if err != nil {
		return nil, err
	}
	record, err := b.attemptOf(o, limit)
	if err != nil {
		return nil, err
	}
	a := &attempt{token: record.Token(b.cfg.Namespace, b.cfg.Cluster, b.cfg.ClusterUID), peerURL: b.peerURL(b.cfg.Member)}
	a.memberID, a.clusterID, err = membership.ExpectedIDs(b.cfg.Member, a.peerURL, a.token)
	if err != nil {
		return nil, err
	}
	record.ClusterID = a.clusterID
	if claimed, err := b.putClaim(ctx, o, record); !claimed || err != nil {
		return nil, err
	}
	b.log.InfoContext(ctx, "bootstrap claimed", "clusterID", leases.FormatID(a.clusterID), "memberID", leases.FormatID(a.memberID),
		"epoch", record.Epoch)
	a.record = record
	return a, nil
}

// attemptOf returns the record with a new attempt of this Pod, above the epoch of every lineage in the cluster's
// place.
func (b *Bootstrapper) attemptOf(o *observation, limit int) (leases.Record, error) {
	nonce, err := newNonce()
	if err != nil {
		return leases.Record{}, err
	}
	record := o.record.record
	record.Epoch = max(record.Epoch, o.storeAnswer.epoch)
	return Claim(record, nonce, b.cfg.PodUID, limit), nil
}

// putClaim writes the attempt to the observed version of the record. It returns false after a conflicting write.
func (b *Bootstrapper) putClaim(ctx context.Context, o *observation, record leases.Record) (bool, error) {
	crash.Before("claim-bootstrap")
	_, err := b.store.UpdateRecord(ctx, o.record.version, record)
	crash.After("claim-bootstrap")
	if errors.Is(err, leases.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim epoch %d: %w", record.Epoch, err)
	}
	return true, nil
}

// identityFile returns the identity of the data that etcd is about to write.
func (b *Bootstrapper) identityFile(o *observation, record leases.Record, clusterID, memberID uint64) datadir.IdentityFile {
	return IdentityFileOf(&b.cfg, record, o.own.member, clusterID, memberID)
}

// limitAtBootstrap is max-learners of a raft group that is formed with this version of etcd.
func (b *Bootstrapper) limitAtBootstrap() (int, error) {
	minor, err := minorOf(b.cfg.EtcdVersion)
	if err != nil {
		return 0, err
	}
	if minor <= 5 {
		return leases.MaxLearners35, nil
	}
	return leases.MaxLearners, nil
}

// newNonce generates the random part of the token of a bootstrap: 64 bits, so that two bootstraps never share a token.
func newNonce() (string, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return "", fmt.Errorf("generate nonce: %w", err)
	}
	return hex.EncodeToString(nonce[:]), nil
}

// peerTimeout bounds a request to one peer. etcd itself waits 10 s, but a peer that does not respond here does not
// respond to etcd either.
const peerTimeout = time.Second

// maxPeerList bounds the response of a peer, in bytes. A member takes a few hundred.
const maxPeerList = 1 << 20

// peerMember is the entry of a member in a peer's list, as etcd returns it to joining members.
type peerMember struct {
	ID uint64 `json:"id"`
}

// firstPeerAgrees makes the same check as a joining etcd. etcd compares its list with that of the first peer that
// responds, in the order of their URLs, and exits if they differ. A learner that is still receiving the database
// responds with the list it was started with, so members that join in that time wait for it.
func (b *Bootstrapper) firstPeerAgrees(ctx context.Context, view membership.View, self uint64) error {
	client := b.transport.HTTPClient()
	defer client.CloseIdleConnections()
	for _, url := range peersOf(view, self) {
		if isSecure(url) && b.cfg.PeerTLS == config.TLSOff {
			return fmt.Errorf("join: peer %s uses TLS, and this Pod has no certificates for peers; set spec.tls.peer", url)
		}
		list, err := peerList(ctx, client, url)
		if err != nil {
			continue // it will not answer etcd either
		}
		if !lists(list, view) {
			return fmt.Errorf("join: peer %s lists %d members, but a quorum lists %d: %w", url, len(list), len(view.Members), errNotYet)
		}
		return nil
	}
	return nil
}

// peersOf returns the peer URLs of all members except self, in the order in which etcd queries them.
func peersOf(view membership.View, self uint64) []string {
	var urls []string
	for _, m := range view.Members {
		if m.ID != self {
			urls = append(urls, m.PeerURLs...)
		}
	}
	slices.Sort(urls)
	return urls
}

func peerList(ctx context.Context, client *http.Client, url string) ([]peerMember, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/members", nil)
	if err != nil {
		return nil, fmt.Errorf("request the member list of %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("request the member list of %s: %s", url, response.Status)
	}
	var list []peerMember
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxPeerList)).Decode(&list)
	return list, err
}

// lists reports whether the list of the peer has exactly the members of view.
func lists(list []peerMember, view membership.View) bool {
	return len(list) == len(view.Members) && !slices.ContainsFunc(list, func(m peerMember) bool {
		_, known := view.Member(m.ID)
		return !known
	})
}
