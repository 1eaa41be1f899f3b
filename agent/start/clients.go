package start

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// serving is whether the label of this Pod makes the Services send clients to it, as the kubelet last wrote it.
type serving uint8

const (
	servingNo      serving = 1 << iota
	servingYes             // the client Service selects the Pod
	servingUnknown         // the Pod has no file with the label, or it cannot be read
)

func (s serving) String() string { return rules.Word(s, "no", "yes", "unknown") }

// clientFacts is the complete input of clientRules.
type clientFacts struct {
	votes   rules.YesNo `fact:"the Lease reports a voter"`
	serving serving     `fact:"the Pod is in the client Service"`
	// served: this start saw a Lease that reported a voter, or the label.
	served  rules.YesNo `fact:"clients could be there"`
	proxies rules.YesNo `fact:"proxies had time"`
	overdue rules.YesNo `fact:"waited too long"`
}

// clientVerdict is what a member that joins does about the clients of its Pod.
type clientVerdict string

const (
	clientsReport clientVerdict = "Report" // write to the Lease that the member does not vote
	clientsWait   clientVerdict = "Wait"
	clientsJoin   clientVerdict = "Join"
)

// clientRules decide when a member may join as a learner. A learner refuses most requests of clients, and a client keeps
// its connection to it until it votes.
var clientRules = rules.New(clientsWait, []rules.Row[clientFacts, clientVerdict]{
	{Name: "lease-reports-voter", When: clientFacts{votes: rules.Yes}, Verdict: clientsReport,
		Why: "druid sends clients to a Pod whose Lease reports a voter; the data of that voter is lost"},
	{Name: "still-in-service", When: clientFacts{serving: servingYes, overdue: rules.No}, Verdict: clientsWait,
		Why: "druid has not removed this Pod from the client Service yet"},
	{Name: "druid-not-responding", When: clientFacts{serving: servingYes}, Verdict: clientsJoin,
		Why: "druid does not respond; a member that does not join is worse than clients that try again"},
	{Name: "no-clients", When: clientFacts{served: rules.No}, Verdict: clientsJoin,
		Why: "this Pod was not in the client Service"},
	{Name: "proxies-lag", When: clientFacts{proxies: rules.No}, Verdict: clientsWait,
		Why: "the nodes can still send connections to this Pod"},
	{Name: "left-service", When: clientFacts{proxies: rules.Yes}, Verdict: clientsJoin,
		Why: "no node sends connections to this Pod"},
})

// Times of clientRules.
const (
	// clientsPoll is how often the agent reads the label.
	clientsPoll = 100 * time.Millisecond
	// proxyLag is how long a node can send connections to a Pod that left a Service. kube-proxy applies changes at least
	// its minSyncPeriod apart, by default one second, and takes about half a second.
	proxyLag = 1500 * time.Millisecond
	// unseenLag replaces proxyLag where the agent does not see the label. It adds what druid and the endpoints need.
	unseenLag = proxyLag + 2*time.Second
	// clientsMaxWait is longer than another replica of druid needs to take over.
	clientsMaxWait = 20 * time.Second
)

// clientsLeaving is what the agent saw since a start began.
type clientsLeaving struct {
	served bool
	// since is the first look. left is the first look without the label after the Lease reported no voter.
	since, left time.Time
	rule        loop.Change[string]
}

// clientsTable is the name of the table in the metric of all decisions.
const clientsTable = "agent/start.clientRules"

// errClients: clients may still be sent to this Pod. The next observation checks again.
var errClients = errors.New("this member joins when no clients are sent to its Pod")

// awaitClients returns nil when this member may join as a learner. It returns errClients after it waited or wrote the
// Lease.
func (b *Bootstrapper) awaitClients(ctx context.Context, o *observation) error {
	now := time.Now()
	f := b.clients.facts(now, o.own.member, b.servingLabel(ctx))
	decision := clientRules.Decide(f)
	if b.clients.rule.To(decision.Rule) {
		b.metrics.WithLabelValues(clientsTable, decision.Rule).Inc()
		b.log.InfoContext(ctx, "client wait decided", "rule", decision.Rule, "waited", now.Sub(b.clients.since))
	}
	switch decision.Verdict {
	case clientsReport:
		if err := b.reportLearner(ctx, o.own.member); err != nil {
			return err
		}
	case clientsJoin:
		return nil
	default:
	}
	if !loop.Sleep(ctx, clientsPoll) {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s", errClients, decision.Why)
}

// facts remembers what was seen at now.
func (c *clientsLeaving) facts(now time.Time, lease leases.Member, label serving) clientFacts {
	votes := lease.Role == leases.RoleLeader || lease.Role == leases.RoleMember
	if c.since.IsZero() {
		c.since = now
	}
	c.served = c.served || votes || label == servingYes
	if votes || label == servingYes {
		c.left = time.Time{}
	} else if c.left.IsZero() {
		c.left = now
	}
	lag := proxyLag
	if label == servingUnknown {
		lag = unseenLag
	}
	return clientFacts{
		votes: rules.YesNoOf(votes), serving: label, served: rules.YesNoOf(c.served),
		proxies: rules.YesNoOf(!c.left.IsZero() && now.Sub(c.left) >= lag),
		overdue: rules.YesNoOf(now.Sub(c.since) >= clientsMaxWait),
	}
}

// servingLabel reads the label that the kubelet writes next to the configuration. A Pod of an older druid has no such
// file.
func (b *Bootstrapper) servingLabel(ctx context.Context) serving {
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(b.cfg.ConfigPath), config.ServingFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return servingUnknown
	case err != nil:
		b.fail(ctx, fmt.Errorf("read whether this Pod is in the client Service: %w", err))
		return servingUnknown
	case strings.TrimSpace(string(raw)) == "":
		return servingNo
	default:
		return servingYes
	}
}

// reportLearner writes to the member Lease that the member does not vote. The raft group has removed the ID in it, or
// does not list it.
func (b *Bootstrapper) reportLearner(ctx context.Context, lease leases.Member) error {
	b.forgetIdentity() // otherwise the agent writes the old role again
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	crash.Before("report-learner")
	_, err := b.store.PatchMember(ctx, b.cfg.Member, leases.MemberPatch{At: lease.LeaseVersion, Member: leases.Member{
		ID: lease.ID, Role: leases.RoleLearner, Raft: lease.Raft, Floor: lease.Floor, Refused: lease.Refused,
	}})
	crash.After("report-learner")
	if err != nil && !errors.Is(err, leases.ErrConflict) {
		return fmt.Errorf("report that the member does not vote: %w", err)
	}
	return nil
}
