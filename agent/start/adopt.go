package start

import (
	"context"
	"errors"
	"fmt"
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
	// Source is the state of the cluster to join.
	Source uint8
	// Claimed says whether the record contains this Pod's claim to join that cluster.
	Claimed uint8
	// Entry is what the member list of that cluster says about this member.
	Entry uint8
)

// Source.
const (
	SourceSilent    Source = 1 << iota // no endpoint answered a linearizable list, or an endpoint could not be reached
	SourceOther                        // the endpoints are of several clusters, or of another one than was begun to be joined
	SourceUnfit                        // it cannot be joined until the user changes it or the spec
	SourceUnhealthy                    // a member is down, or it has a learner or an alarm of its own
	SourceFit
)

// Claimed.
const (
	Unintended Claimed = 1 << iota // not by this Pod, or without the IDs of its members
	Intended
)

// Entry.
const (
	NoEntry    Entry = 1 << iota
	NewLearner       // the learner that we added in this start, whose etcd wrote no log yet
	OldLearner       // a learner at our peer URL that we did not add in this start
	VoterEntry       // a voter at our peer URL
)

func (s Source) String() string {
	return rules.Word(s, "silent", "another", "unfit", "unhealthy", "fit")
}
func (c Claimed) String() string { return rules.Word(c, "no", "yes") }
func (e Entry) String() string {
	return rules.Word(e, "not listed", "a learner added in this start", "a learner of an earlier start", "a voter")
}
func (s adoptionStep) String() string {
	return [...]string{"", "claim", "remove that learner", "add this member, start"}[s]
}

// AdoptionFacts is the complete input of decideAdoption.
type AdoptionFacts struct {
	Source  Source  `fact:"that cluster"`
	Claimed Claimed `fact:"claimed in the record"`
	Entry   Entry   `fact:"lists this member as"`
	// Needs of a member add, as in Facts.
	Needs Needs
}

// adoptionStep is the next step. Each step makes at most one call that cannot be undone.
type adoptionStep uint8

const (
	noStep adoptionStep = iota
	// stepClaim writes to the record which raft group the cluster joins, and the IDs of its members.
	stepClaim
	// stepDrop removes the old learner of this member.
	stepDrop
	// stepEnter adds this member as a learner, unless that is done, and starts etcd.
	stepEnter
)

// adoptionVerdict is a mode, and for ModeAdopt also a step.
type adoptionVerdict struct {
	mode Mode         `fact:"decision"`
	step adoptionStep `fact:"step"`
}

// adoptions is the complete policy of a bootstrap by joining. It is used only where the start table lets this member
// bootstrap. The first match wins. The default is Refuse.
var adoptions = rules.New(adoptionVerdict{mode: ModeRefuse}, []rules.Row[AdoptionFacts, adoptionVerdict]{
	{Name: "source-other", When: AdoptionFacts{Source: SourceOther}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the endpoints of spec.bootstrap.join belong to different clusters, or not to the cluster whose join has begun", Detail: "source"},
	{Name: "source-silent", When: AdoptionFacts{Source: SourceSilent}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "the cluster to join cannot be queried", Detail: "source"},
	{Name: "source-unfit", When: AdoptionFacts{Source: SourceUnfit}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the cluster to join does not meet the requirements", Detail: "source"},
	{Name: "listed-as-voter", When: AdoptionFacts{Entry: VoterEntry}, Verdict: adoptionVerdict{ModeRefuse, noStep},
		Why: "the cluster to join lists this member as a voter, but its data is lost; remove it there with etcdctl member remove"},
	{Name: "intend-to-join", When: AdoptionFacts{Claimed: Unintended, Source: SourceFit}, Verdict: adoptionVerdict{ModeAdopt, stepClaim},
		Why: "the cluster record names the raft group before the agent changes that group, so that no agent forms or joins another one"},
	{Name: "finish-joining", When: AdoptionFacts{Claimed: Intended, Entry: NewLearner}, Verdict: adoptionVerdict{ModeAdopt, stepEnter},
		Why: "this start added the learner, and its etcd has never written a log"},
	{Name: "drop-old-learner", When: AdoptionFacts{Claimed: Intended, Entry: OldLearner}, Verdict: adoptionVerdict{ModeAdopt, stepDrop},
		Why: "the agent never starts a raft ID without its data, and the removal of a learner costs no vote"},
	{Name: "source-unhealthy", When: AdoptionFacts{Source: SourceUnhealthy}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "the cluster to join is not healthy", Detail: "source"},
	{Name: "joining-needs-unmet", When: AdoptionFacts{Needs: Unmet}, Verdict: adoptionVerdict{ModeWait, noStep},
		Why: "a requirement for adding this member is not met", Detail: "source needs"},
	{Name: "add-learner", When: AdoptionFacts{Claimed: Intended, Source: SourceFit, Entry: NoEntry, Needs: Met}, Verdict: adoptionVerdict{ModeAdopt, stepEnter},
		Why: "a learner does not count for the quorum of the existing members"},
})

// adoption is the result of decideAdoption.
type adoption struct {
	Decision
	step adoptionStep
}

// decideAdoption returns a decision for every combination of facts, like Decide.
func decideAdoption(f AdoptionFacts) adoption {
	d := adoptions.Decide(f)
	decision := decisionOf(rules.Decision[Mode]{Verdict: d.Verdict.mode, Rule: d.Rule, Why: d.Why, Detail: d.Detail})
	return adoption{Decision: decision, step: d.Verdict.step}
}

// sourceSight is what was read from the cluster to join.
type sourceSight struct {
	// view is its member list from a quorum; listErr says why there is none.
	view    membership.View
	listErr error
	// foreign are the endpoints that belong to another cluster than view.
	foreign []string
	// readErr is the result of a linearizable read.
	readErr error
	// statuses are the responses of the members, statusErrs the errors of those without one.
	statuses   map[uint64]membership.Status
	statusErrs map[uint64]error
	// peerErrs say why members do not accept this one as a peer, if peers use TLS.
	peerErrs map[uint64]error
}

// floors are the lowest supported patch versions of a cluster to join, by minor version. They are the same as for
// spec.version. Older versions promote learners by mistake, or corrupt the data that they send to a learner.
var floors = map[int]int{5: 31, 6: 12, 7: 0}

// errAuthEnabled is the result of a read that succeeded because the client certificate names a user.
var errAuthEnabled = errors.New("authentication is enabled")

// sourceOf returns whether the member at peerURL can join the cluster, and the reason if not.
func sourceOf(cfg *config.Config, s *sourceSight, peerURL string) (source Source, detail string) {
	switch {
	case errors.Is(s.listErr, membership.ErrOtherCluster):
		return SourceOther, s.listErr.Error()
	case s.listErr != nil:
		return SourceSilent, s.listErr.Error()
	case len(s.foreign) > 0:
		return SourceOther, fmt.Sprintf("these endpoints do not belong to cluster %x: %s", s.view.ClusterID, strings.Join(s.foreign, ", "))
	case membership.Denied(s.readErr) || errors.Is(s.readErr, rpctypes.ErrUserNotFound) || errors.Is(s.readErr, errAuthEnabled):
		return SourceUnfit, "authentication is enabled, and the agents have no user there; run etcdctl auth disable until the migration is complete"
	case s.readErr != nil:
		return SourceSilent, s.readErr.Error()
	}
	source = SourceFit
	for _, m := range s.view.Members {
		if m.At(peerURL) {
			continue // our own entry
		}
		found, words := s.memberOf(cfg, m)
		// Report first what needs user action.
		if found != SourceFit && (source == SourceFit || found == SourceUnfit && source != SourceUnfit) {
			source, detail = found, fmt.Sprintf("member %s (%x): %s", m.Name, m.ID, words)
		}
	}
	return source, detail
}

// memberOf returns whether one member of the cluster permits the join, and the reason if not.
func (s *sourceSight) memberOf(cfg *config.Config, m membership.Member) (source Source, detail string) {
	if problem := schemeProblem(cfg, m); problem != "" {
		return SourceUnfit, problem
	}
	switch status, err := s.statuses[m.ID], s.statusErrs[m.ID]; {
	case m.Learner:
		return SourceUnhealthy, "it is a learner, and etcd allows one learner at a time by default; promote or remove it"
	case !m.Started():
		return SourceUnhealthy, "it was added but never started"
	case err != nil:
		return SourceUnhealthy, "it cannot be queried at the client URLs that it advertises: " + err.Error()
	case s.peerErrs[m.ID] != nil:
		return SourceUnhealthy, "it cannot be reached as a peer with the certificates of spec.tls.peer: " + s.peerErrs[m.ID].Error()
	default:
		return statusOf(cfg, status)
	}
}

func statusOf(cfg *config.Config, status membership.Status) (source Source, detail string) {
	if words := versionProblem(status.Version, cfg.EtcdVersion); words != "" {
		return SourceUnfit, words
	}
	quota := cfg.Quota()
	switch {
	// A member that exceeds its quota stops the writes of the complete cluster.
	case status.DBSize+status.DBSize/10 > quota:
		return SourceUnfit, fmt.Sprintf("its database has %d MiB, which is too large for the quota of %d MiB of the joining members; "+
			"defragment it, or create the EtcdCluster again with a larger spec.etcd.quotaBackendBytes", status.DBSize>>20, quota>>20)
	case status.Leader == 0:
		return SourceUnhealthy, "it has no leader"
	case len(status.Errors) > 0:
		return SourceUnhealthy, strings.Join(status.Errors, ", ")
	default:
		return SourceFit, ""
	}
}

// versionProblem returns why a member of version wanted cannot join a member of version has. It is empty if it can.
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
		return fmt.Sprintf("it runs etcd %s, but spec.version is %s: the minor versions must be the same; upgrade the cluster after the join", has, wanted)
	}
	patch, err := patchOf(has)
	if err != nil {
		return err.Error()
	}
	if floor := floors[minor]; patch < floor {
		return fmt.Sprintf("it runs etcd %s, which has bugs that corrupt data or promote learners by mistake; upgrade it to 3.%d.%d or later", has, minor, floor)
	}
	return ""
}

// patchOf returns the patch of an etcd version 3.minor.patch. A vendor suffix after a dash is ignored.
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

// adopt starts the cluster as a member of a running raft group. Before the first request to that group, the claim in
// the record names the group and its members. After a crash, the next agent finds there which group to join.
func (b *Bootstrapper) adopt(ctx context.Context, o *observation) (*launch.Order, error) {
	switch o.adoption.step {
	case stepClaim:
		return nil, b.intend(ctx, o)
	case stepDrop:
		return nil, b.dropLearner(ctx, o)
	case stepEnter:
		return b.join(ctx, o)
	default:
		return nil, fmt.Errorf("decision %s has no step to run", o.adoption.Rule)
	}
}

// intend claims the bootstrap. After a conflicting write, the agent observes again.
func (b *Bootstrapper) intend(ctx context.Context, o *observation) error {
	record, err := b.attemptOf(o, leases.MaxLearnersAdopted)
	if err != nil {
		return err
	}
	record.ClusterID, record.Externals = o.view.ClusterID, externalsIn(o.view, o.entry)
	claimed, err := b.putClaim(ctx, o, record)
	if claimed {
		b.log.InfoContext(ctx, "join claimed", "clusterID", leases.FormatID(record.ClusterID), "epoch", record.Epoch, "externals", record.Externals)
	}
	return err
}

// dropLearner removes the learner that an earlier start of this member left in the group.
func (b *Bootstrapper) dropLearner(ctx context.Context, o *observation) error {
	if err := b.quarantine(ctx, o, o.Data.String()); err != nil {
		return err
	}
	return b.removeOwn(ctx, o)
}

// adopted verifies that the own etcd is the learner of the identity file, and that a quorum of the raft group lists it
// as started.
func (s *finisher) adopted(ctx context.Context, record leases.Record) error {
	status, err := s.self(ctx)
	if err != nil {
		return err
	}
	if status.Leader == 0 {
		return errors.New("form: etcd has no leader in the cluster that it joins")
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
