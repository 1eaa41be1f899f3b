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

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// act does what was decided: at most one irreversible call, which repeats as nothing where it was done before. It returns
// the order to start etcd, or nil where a new look must come first.
func (b *Bootstrapper) act(ctx context.Context, d Decision, o *observation) (*launch.Order, error) {
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
		return nil, b.quarantine(ctx, o, "removed")
	case ModeRestore:
		return b.restore(ctx, d, o)
	case ModeForceNew:
		// No observation holds the facts of this row, see the package's doc.
		return nil, fmt.Errorf("decision %s: this agent cannot act on it; use an agent that can recover clusters", d.Mode)
	default:
		return nil, nil
	}
}

// order starts etcd on the stamped volume.
func (b *Bootstrapper) order(identityFile datadir.IdentityFile, s start) (*launch.Order, error) {
	args, err := argv(b.cfg, b.peerURL(b.cfg.Member), b.clientURL(b.cfg.Member), b.transport.Scheme(), s)
	if err != nil {
		return nil, err
	}
	b.forgetVolume() // etcd changes it from now on
	b.setIdentity(identityFile)
	return &launch.Order{Version: launch.ProtocolVersion, Kind: launch.OrderStart, Path: b.cfg.EtcdPath, Argv: args}, nil
}

// moveAside clears the place for new data. Empty data may have left-overs, which go aside just the same.
func (b *Bootstrapper) quarantine(ctx context.Context, o *observation, reason string) error {
	if o.volume.report.State == datadir.Empty && !o.volume.report.Leftover {
		return nil
	}
	content := datadir.ContentOf(reason, o.volume.report)
	name, err := datadir.Quarantine(b.cfg.VolumePath, content)
	b.forgetVolume()
	if err != nil {
		return err
	}
	b.log.InfoContext(ctx, "data moved aside", "aside", name, "data", o.volume.report.String(), "reason", reason)
	return nil
}

// resumeStagger between the members of a cluster that restarts as a whole: somewhat more than an etcd needs to serve.
const resumeStagger = 700 * time.Millisecond

// stagger keeps a majority from starting at one moment. etcd's check for corruption asks each peer before it serves, and
// waits 7 s for one that has opened its port and does not serve yet; one that is not there, or serves, costs nothing.
// Without a record the name's hash stands in for the place in it.
func (b *Bootstrapper) stagger(o *observation) time.Duration {
	if record, ok := b.knownRecord(o); ok {
		return time.Duration(max(0, slices.Index(record.Members, b.cfg.Member))) * resumeStagger
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(b.cfg.Member))
	return time.Duration(hash.Sum32()%resumeSlots) * resumeStagger
}

// resumeSlots bounds the wait of a member that cannot know its place.
const resumeSlots = 5

// resume starts etcd on its data. Should the data vanish before etcd opens it, the flags let it form no cluster.
func (b *Bootstrapper) resume(ctx context.Context, o *observation) (*launch.Order, error) {
	if o.Listed == NoQuorum && !loop.Sleep(ctx, b.stagger(o)) {
		return nil, context.Cause(ctx)
	}
	b.joining = joining{} // there is a log: whatever we joined as was started, and is never started without it again (R4)
	return b.order(o.volume.identityFile, start{
		cluster: b.cfg.Member + "=" + b.peerURL(b.cfg.Member), token: o.volume.identityFile.Token,
		maxLearners: o.volume.identityFile.MaxLearners,
	})
}

// attempt is a bootstrap that is claimed.
type attempt struct {
	record              leases.Record
	token, peerURL      string
	memberID, clusterID uint64
}

// cluster is --initial-cluster: a group is formed with one member.
func (a *attempt) cluster(member string) string { return member + "=" + a.peerURL }

// form claims an attempt in the record and starts etcd as the only member of a new cluster. The claim comes before any
// data (R2); anyone who claims after us makes our attempt a lost one, and its data never leaves this volume.
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

// claim puts an attempt of ours into the record, above the epoch of every lineage that the backup store has of a cluster
// of this name. It returns nil where someone else wrote meanwhile: then a new look must come first.
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
	b.log.InfoContext(ctx, "forming claimed", "clusterID", leases.FormatID(a.clusterID), "memberID", leases.FormatID(a.memberID),
		"epoch", record.Epoch)
	a.record = record
	return a, nil
}

// attemptOf is the record with a new attempt of ours, above the epoch of every lineage in the cluster's place.
func (b *Bootstrapper) attemptOf(o *observation, limit int) (leases.Record, error) {
	nonce, err := newNonce()
	if err != nil {
		return leases.Record{}, err
	}
	record := o.record.record
	record.Epoch = max(record.Epoch, o.bootstraps.epoch)
	return Claim(record, nonce, b.cfg.PodUID, limit), nil
}

// putClaim writes the attempt into the record as it was observed; false means that someone else wrote meanwhile.
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

// stamp says whose the data of this volume is going to be.
func (b *Bootstrapper) identityFile(o *observation, record leases.Record, clusterID, memberID uint64) datadir.IdentityFile {
	return IdentityFileOf(&b.cfg, record, o.own.member, clusterID, memberID)
}

// limitAtBirth is max-learners of a raft group that is formed on our version of etcd.
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

// newNonce draws what makes a bootstrap's token its own: 64 bits, so that no two bootstraps ever share one.
func newNonce() (string, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return "", fmt.Errorf("draw nonce: %w", err)
	}
	return hex.EncodeToString(nonce[:]), nil
}

// peerTimeout of a question to one peer. etcd itself waits 10 s, but a peer that is silent here is silent there too.
const peerTimeout = time.Second

// maxPeerList bounds the answer of a peer, in bytes: a member takes a few hundred.
const maxPeerList = 1 << 20

// peerMember is what a peer's list says of a member, as etcd reports it to others that join.
type peerMember struct {
	ID uint64 `json:"id"`
}

// firstPeerAgrees asks as an etcd that joins does: it compares its own list with that of the first peer that answers, in
// the order of their URLs, and ends if they differ. A learner that is still sent the database answers with the list it was
// started with, for as long as that takes: who joins meanwhile waits for it.
func (b *Bootstrapper) firstPeerAgrees(ctx context.Context, view membership.View, self uint64) error {
	client := b.transport.HTTPClient()
	defer client.CloseIdleConnections()
	for _, url := range peersOf(view, self) {
		list, err := peerList(ctx, client, url)
		if err != nil {
			continue // it will not answer etcd either
		}
		if !lists(list, view) {
			return fmt.Errorf("join: %s lists %d members, a quorum %d: %w", url, len(list), len(view.Members), errNotYet)
		}
		return nil
	}
	return nil
}

// peersOf are the peer URLs of all but self, in the order in which etcd asks them.
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
		return nil, fmt.Errorf("ask %s for its members: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s for its members: %s", url, response.Status)
	}
	var list []peerMember
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxPeerList)).Decode(&list)
	return list, err
}

// lists says whether the peer knows exactly the members of view.
func lists(list []peerMember, view membership.View) bool {
	return len(list) == len(view.Members) && !slices.ContainsFunc(list, func(m peerMember) bool {
		_, known := view.Member(m.ID)
		return !known
	})
}
