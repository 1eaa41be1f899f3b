package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// One-bit enums of a bootstrap by joining.
type (
	// Source is the running cluster that is to be joined.
	Source uint8
	// Claimed says whether the record has our intent to join it.
	Claimed uint8
	// Entry is what the running cluster's list says of us.
	Entry uint8
)

// Source.
const (
	SourceSilent Source = 1 << iota // no one of it answered a linearizable list, or someone could not be asked
	SourceOther                     // the endpoints are of several clusters, or of another one than was begun to be joined
	SourceUnfit                     // it cannot be joined as it is, until a person changes it or the spec
	SourceAiling                    // a member is down, or it has a learner or an alarm of its own
	SourceFit
	anySource = 1<<iota - 1
)

// Claimed.
const (
	Unintended Claimed = 1 << iota // not by this Pod, or without the IDs of its members
	Intended
	anyClaimed = 1<<iota - 1
)

// Entry.
const (
	NoEntry    Entry = 1 << iota
	NewLearner       // the learner that we added in this start, whose etcd wrote no log yet
	OldLearner       // a learner at our peer URL that we did not add in this start
	VoterEntry       // a voter at our peer URL
	anyEntry   = 1<<iota - 1
)

func (s Source) String() string  { return rules.Word(s, "silent", "another", "unfit", "ailing", "fit") }
func (c Claimed) String() string { return rules.Word(c, "no", "yes") }
func (e Entry) String() string {
	return rules.Word(e, "nobody", "a learner added in this start", "a learner of an earlier start", "a voter")
}
func (s adoptionStep) String() string {
	return [...]string{"", "claim", "remove that learner", "be added, start"}[s]
}

// AdoptionFacts is all that DecideAdoption may look at.
type AdoptionFacts struct {
	Source  Source  `fact:"that cluster"`
	Claimed Claimed `fact:"claimed in the record"`
	Entry   Entry   `fact:"lists us as"`
	// Needs of a member add, as in Facts.
	Needs Needs
}

// adoptionStep is what is done next, each at most one call that cannot be undone.
type adoptionStep uint8

const (
	noStep adoptionStep = iota
	// stepClaim writes into the record which raft group the cluster is going to be part of, and whom it has.
	stepClaim
	// stepDrop removes our old learner.
	stepDrop
	// stepEnter adds us as a learner, unless that was done, and starts etcd.
	stepEnter
)

// adoptionVerdict is a mode, and the step of ModeAdopt.
type adoptionVerdict struct {
	mode Mode         `fact:"decision"`
	step adoptionStep `fact:"step"`
}

// adoptions is the whole policy of a bootstrap by joining. It is asked only where the table of the starts gives a bootstrap to us. First
// match wins; what no rule covers is refused.
var adoptions = rules.New(adoptionVerdict{mode: ModeRefuse}, []rules.Row[AdoptionFacts, adoptionVerdict]{
	{Name: "source-other", When: AdoptionFacts{Source: SourceOther}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the endpoints of spec.bootstrap.join do not answer for one and the same cluster"},
	{Name: "source-silent", When: AdoptionFacts{Source: SourceSilent}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "the cluster that is to be joined cannot be asked"},
	{Name: "source-unfit", When: AdoptionFacts{Source: SourceUnfit}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the cluster that is to be joined cannot be joined as it is"},
	{Name: "listed-as-voter", When: AdoptionFacts{Entry: VoterEntry}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the cluster that is to be joined lists this member as a voter, and its data is gone: remove it there with etcdctl member remove"},
	{Name: "intend-to-join", When: AdoptionFacts{Claimed: Unintended, Source: SourceFit}, Verdict: adoptionVerdict{ModeAdopt, stepClaim},
		Why: "the record names the raft group before anything of it is changed, so that no one forms or joins another one"},
	{Name: "finish-adoption", When: AdoptionFacts{Claimed: Intended, Entry: NewLearner}, Verdict: adoptionVerdict{ModeAdopt, stepEnter},
		Why: "we added this learner, and no log of it was ever written"},
	{Name: "drop-old-learner", When: AdoptionFacts{Claimed: Intended, Entry: OldLearner}, Verdict: adoptionVerdict{ModeAdopt, stepDrop},
		Why: "a raft ID is never started without its data, and a learner takes no vote along"},
	{Name: "source-ailing", When: AdoptionFacts{Source: SourceAiling}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "the cluster that is to be joined is not healthy"},
	{Name: "adoption-needs", When: AdoptionFacts{Needs: Unmet}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "what a member add will need is not there"},
	{Name: "adopt", When: AdoptionFacts{Claimed: Intended, Source: SourceFit, Entry: NoEntry, Needs: Met}, Verdict: adoptionVerdict{ModeAdopt, stepEnter},
		Why: "a learner takes no part in the quorum of those that are there"},
})

// adoption is what DecideAdoption decided.
type adoption struct {
	Decision
	step adoptionStep
}

// decideAdoption is total, as Decide is.
func decideAdoption(f AdoptionFacts) adoption {
	d := adoptions.Decide(f)
	decision := decisionOf(rules.Decision[Mode]{Verdict: d.Verdict.mode, Rule: d.Rule, Why: d.Why})
	return adoption{Decision: decision, step: d.Verdict.step}
}

// sourceSight is what was read of the cluster that is to be joined.
type sourceSight struct {
	// view is its member list as a quorum reported it, or listErr why there is none.
	view    membership.View
	listErr error
	// stray are the endpoints that answered for another cluster than view's.
	stray []string
	// readErr is what a linearizable read answered.
	readErr error
	// statuses are the members' own answers, statusErrs why there is none of a member.
	statuses   map[uint64]membership.Status
	statusErrs map[uint64]error
}

// defaultQuota is etcd's own (server/storage, DefaultQuotaBytes).
const defaultQuota = 2 << 30

// floors are the lowest patches by minor that a cluster may run which is joined: those of spec.version. Older ones promote learners
// by mistake, or corrupt the data that they send to one.
var floors = map[int]int{5: 31, 6: 12, 7: 0}

// sourceOf says whether the cluster can be joined by the member at peerURL, and in words what speaks against it.
func sourceOf(cfg *config.Config, s *sourceSight, peerURL string) (source Source, detail string) {
	switch {
	case errors.Is(s.listErr, membership.ErrOtherCluster):
		return SourceOther, s.listErr.Error()
	case s.listErr != nil:
		return SourceSilent, s.listErr.Error()
	case len(s.stray) > 0:
		return SourceOther, fmt.Sprintf("not of cluster %x: %s", s.view.ClusterID, strings.Join(s.stray, ", "))
	case errors.Is(s.readErr, rpctypes.ErrUserEmpty) || errors.Is(s.readErr, rpctypes.ErrPermissionDenied):
		return SourceUnfit, "authentication is on, and the agents have no user there; turn it off with etcdctl auth disable until the move is done"
	case s.readErr != nil:
		return SourceSilent, s.readErr.Error()
	}
	source = SourceFit
	for _, m := range s.view.Members {
		if slices.Contains(m.PeerURLs, peerURL) {
			continue // our own entry
		}
		found, words := s.memberOf(cfg, m)
		// What a person has to repair is reported first.
		if found != SourceFit && (source == SourceFit || found == SourceUnfit && source != SourceUnfit) {
			source, detail = found, fmt.Sprintf("member %s (%x): %s", m.Name, m.ID, words)
		}
	}
	return source, detail
}

// memberOf says what one of its members makes of it.
func (s *sourceSight) memberOf(cfg *config.Config, m membership.Member) (source Source, detail string) {
	for _, url := range slices.Concat(m.PeerURLs, m.ClientURLs) {
		if !strings.HasPrefix(url, "http://") {
			return SourceUnfit, "it advertises " + url + "; druid's members speak no TLS yet, so they cannot join a cluster whose members do"
		}
	}
	switch status, err := s.statuses[m.ID], s.statusErrs[m.ID]; {
	case m.Learner:
		return SourceAiling, "it is a learner, and a cluster takes one at a time unless it is reported otherwise; promote or remove it"
	case !m.Started():
		return SourceAiling, "it was added and never started"
	case err != nil:
		return SourceAiling, "it cannot be asked at the client URLs that it advertises: " + err.Error()
	default:
		return statusOf(cfg, status)
	}
}

// quotaOf is how large etcd lets its database become, in bytes.
func quotaOf(cfg *config.Config) int64 { return cmp.Or(cfg.QuotaBackendBytes, defaultQuota) }

func statusOf(cfg *config.Config, status membership.Status) (source Source, detail string) {
	if words := versionProblem(status.Version, cfg.EtcdVersion); words != "" {
		return SourceUnfit, words
	}
	quota := quotaOf(cfg)
	switch {
	// A member over its quota stops the writes of the whole cluster.
	case status.DBSize+status.DBSize/10 > quota:
		return SourceUnfit, fmt.Sprintf("its database has %d MiB, too much for the quota of %d MiB of the members that join; "+
			"defragment it, or create the EtcdCluster again with a larger etcd.quotaBackendBytes", status.DBSize>>20, quota>>20)
	case status.Leader == 0:
		return SourceAiling, "it knows no leader"
	case len(status.Errors) > 0:
		return SourceAiling, strings.Join(status.Errors, ", ")
	default:
		return SourceFit, ""
	}
}

// versionProblem says why a member of version has cannot be joined by one of version wanted; empty if it can.
func versionProblem(has, wanted string) string {
	minor, err := minorOf(has)
	if err != nil {
		return err.Error()
	}
	ours, err := minorOf(wanted)
	if err != nil {
		return err.Error()
	}
	if minor != ours {
		return fmt.Sprintf("it runs etcd %s, and spec.version is %s: the minors must be the same; the cluster can be upgraded once it is joined", has, wanted)
	}
	patch, err := patchOf(has)
	if err != nil {
		return err.Error()
	}
	if floor := floors[minor]; patch < floor {
		return fmt.Sprintf("it runs etcd %s, whose bugs corrupt data or promote learners by mistake; upgrade it to 3.%d.%d at least", has, minor, floor)
	}
	return ""
}

// patchOf reads the patch of an etcd version 3.minor.patch; what follows a dash is a vendor's.
func patchOf(version string) (int, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return 0, fmt.Errorf("etcd version %q: want 3.minor.patch", version)
	}
	text, _, _ := strings.Cut(parts[2], "-")
	patch, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("etcd version %q: want 3.minor.patch", version)
	}
	return patch, nil
}

// adopt lets the cluster begin as a member of a raft group that runs. The claim in the record names that group and whom it has
// before it is asked for anything; anyone who comes after a death finds there which group to go on with.
func (b *Bootstrapper) adopt(ctx context.Context, o *observation) (*launch.Order, error) {
	switch o.adoption.step {
	case stepClaim:
		return nil, b.intend(ctx, o)
	case stepDrop:
		return nil, b.dropLearner(ctx, o)
	case stepEnter:
		return b.join(ctx, o)
	default:
		return nil, fmt.Errorf("decision %s: nothing is known to be done", o.adoption.Rule)
	}
}

// intend claims the bootstrap. Someone else's write in between means a new look.
func (b *Bootstrapper) intend(ctx context.Context, o *observation) error {
	record, err := b.attemptOf(o, leases.MaxLearnersAdopted)
	if err != nil {
		return err
	}
	record.ClusterID, record.Externals = o.view.ClusterID, externalsIn(o.view, o.entry)
	claimed, err := b.putClaim(ctx, o, record)
	if claimed {
		b.log.InfoContext(ctx, "joining claimed", "clusterID", leases.FormatID(record.ClusterID), "epoch", record.Epoch, "externals", record.Externals)
	}
	return err
}

// dropLearner removes what an earlier start of ours left in the group.
func (b *Bootstrapper) dropLearner(ctx context.Context, o *observation) error {
	if err := b.quarantine(ctx, o, o.Data.String()); err != nil {
		return err
	}
	return b.removeOwn(ctx, o)
}

// adopted proves that our etcd is the learner of the stamp, and that a quorum of the raft group lists it as started.
func (s *finisher) adopted(ctx context.Context, record leases.Record) error {
	status, err := s.self(ctx)
	if err != nil {
		return err
	}
	if status.Leader == 0 {
		return errors.New("form: our etcd knows no leader of the cluster that it joins")
	}
	view, err := s.b.list(ctx, record, uint64(s.identityFile.ClusterID))
	if err != nil {
		return fmt.Errorf("form: %w", err)
	}
	entry, listed := view.Member(uint64(s.identityFile.MemberID))
	if !listed || !entry.Started() {
		return fmt.Errorf("form: cluster %x does not list member %x as started: %w", view.ClusterID, uint64(s.identityFile.MemberID), membership.ErrNotFound)
	}
	return nil
}
