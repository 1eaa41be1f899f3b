package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

var (
	chaosRounds = flag.Int("chaos.rounds", 1, "rounds of chaos, each with a cluster of its own")
	chaosFor    = flag.Duration("chaos.for", 2*time.Minute, "for how long faults begin in a round; the validator bounds that to about five minutes")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "seed of the chaos; 0 for another one in each run, or for one that the commit gives")
	chaosKinds  = flag.String("chaos.kinds", "", "only faults whose names this regular expression matches; empty for those that the seed draws")
)

// chaosNow is the seed of the short round of this process, also if it is repeated.
var chaosNow = uint64(time.Now().Unix())

// chaosScope is how much happens in a round.
type chaosScope struct {
	// size is the number of members; 0 for one that the seed draws.
	size int
	// span is for how long faults begin.
	span time.Duration
	// moments is how many revisions are restored from the backups.
	moments int
	// brief leaves out what takes longer than half a minute.
	brief bool
}

// Faults that overlap happen for 40 seconds to a cluster of three members, with another seed in each run. The promises are those of
// TestFaultsThatOverlapBreakNoPromise. Again, with the seed that it prints:
// go test ./test/e2e -run Briefly -args -chaos.seed N
func TestFaultsThatOverlapBriefly(t *testing.T) {
	stories.Begin(t)
	seed := chaosNow
	if *chaosSeed != 0 {
		seed = *chaosSeed
	}
	t.Run(fmt.Sprintf("-chaos.seed %d", seed), func(t *testing.T) {
		chaosRound(t, seed, chaosScope{size: 3, span: 40 * time.Second, moments: 5, brief: true})
	})
}

// Faults that overlap happen to a cluster while clients read, write and watch. Afterwards etcd's own validator finds no contradiction to
// the promises of etcd in what the clients did and saw. There is always a quorum, and all members agree at the end. Revisions that are
// drawn from the history are restored from the backups, with the keys that the members had. Then the quorum is lost and recovered, and no
// more writes are lost than announced. By hand, for longer and with another seed: make chaos ROUNDS=20 SEED=7
func TestFaultsThatOverlapBreakNoPromise(t *testing.T) {
	stories.Begin(t)
	seed := seedOr(*chaosSeed)
	for round := range *chaosRounds {
		t.Run(fmt.Sprintf("-chaos.seed %d", seed+uint64(round)), func(t *testing.T) {
			chaosRound(t, seed+uint64(round), chaosScope{span: *chaosFor, moments: moments})
		})
	}
}

func chaosRound(t *testing.T, seed uint64, scope chaosScope) {
	draw := rand.New(rand.NewPCG(seed, 0))
	size := []int{3, 5}[draw.IntN(2)]
	if scope.size > 0 {
		size = scope.size
	}
	kind := []string{"etcd", "kubernetes"}[draw.IntN(2)]
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	options := []harness.Option{
		harness.TLS(leafLifetime), holdsTrust, harness.Replicas(int32(size)), harness.Version(rig.EtcdVersion(t, "3.6")), wholeLog,
		backedUp(s3.Store(bucket)), recovers(v1alpha1.RecoverySpec{Policy: v1alpha1.RecoveryAutomatic,
			MaxDataLoss: &v1alpha1.MaxDataLoss{Seconds: new(int64(chaosLoss))}}),
	}
	auth := seed%2 == 0
	if auth {
		options = append(options, authenticated)
	}
	c := rig.ApplyIn(t, namespace, options...)
	first := c.AwaitMembers(t, size, formWithin)
	if auth {
		c.AwaitCondition(t, formWithin, v1alpha1.ConditionAuthReady, "True")
	}
	awaitBackups(t, c)
	changes := changeOf(seed, scope)
	ch := &chaos{cluster: c, history: c.History(t, kind), store: s3, size: size, minor: "3.6", brief: scope.brief, end: time.Now().Add(scope.span),
		hit: map[string]bool{}}
	ch.history.Keep(t, c.MemberNames(t)...)
	ch.learn(t)
	certificates, s := expiries(t, c, c.MemberNames(t)), c.Sample(t)
	ch.happens(t, seed, changes)
	if t.Failed() {
		return
	}
	last := c.AwaitMembers(t, size, scaleWithin)
	s.Stop(t)
	ch.renewed(t, certificates)
	ch.history.Keep(t, c.MemberNames(t)...)
	t.Logf("%d members of %s, authentication %t, traffic of %s, %s", size, c, auth, kind, ch.summary())
	t.Logf("clients: %s", ch.history.Stop(t))
	if last.ClusterID != first.ClusterID {
		harness.Unsafe(t, "the cluster has ID %s, and had %s", last.ClusterID, first.ClusterID)
	}
	holdTheSame(t, c.Etcd(t), last)
	t.Logf("valid: %s", ch.history.Validate(t))
	ch.restoresMoments(t, scope.moments, draw)
	if !scope.brief {
		ch.losesTheQuorum(t, seed, last)
	}
}

// happens lets the faults of a round happen, in lanes side by side.
func (ch *chaos) happens(t *testing.T, seed uint64, changes []chaosFault) {
	t.Helper()
	t.Run("faults", func(t *testing.T) {
		for lane := range ch.size - ch.size/2 - 1 { // a quorum is left
			t.Run(fmt.Sprintf("costly %d", lane), func(t *testing.T) {
				t.Parallel()
				if lane == 0 {
					ch.change(t, changes)
				}
				ch.costly(t, rand.New(rand.NewPCG(seed, uint64(1+lane))))
			})
		}
		for lane, faults := range [][]chaosFault{agentFaults, groundFaults} {
			t.Run(fmt.Sprintf("cheap %d", lane), func(t *testing.T) {
				t.Parallel()
				ch.cheap(t, rand.New(rand.NewPCG(seed, uint64(100+lane))), faults)
			})
		}
	})
}

// wholeLog keeps etcd from compacting its log, so that the logs together have all entries.
func wholeLog(c *v1alpha1.EtcdCluster) {
	c.Spec.Etcd.SnapshotCount = new(int64(100_000_000))
}

// holdsTrust gives the clients a time to read their Secret again when the authority is replaced.
func holdsTrust(c *v1alpha1.EtcdCluster) {
	c.Spec.TLS.Client.TrustHold = &metav1.Duration{Duration: trustHold}
}

// chaos is a round of faults.
type chaos struct {
	cluster *harness.Cluster
	history *harness.History
	store   *harness.S3
	size    int
	minor   string // of etcd
	brief   bool
	end     time.Time
	// api is held for writing while the API server is down. Faults that need it hold it for reading.
	api sync.RWMutex

	mu       sync.Mutex
	happened map[string]int
	known    map[string]knownMember
	changing time.Time // since when a change is under way, or zero. Meanwhile the round goes on, whatever end says
	hit      map[string]bool
}

// chaosFault is one kind of fault. A costly fault has a member that it takes away for a time; for others, the name is empty. Each fault
// verifies that it takes effect.
type chaosFault struct {
	name string
	do   func(*testing.T, *chaos, string, *rand.Rand)
}

// chosen are the faults that -chaos.kinds names.
func chosen(faults []chaosFault) []chaosFault {
	kinds := regexp.MustCompile(*chaosKinds)
	return slices.DeleteFunc(slices.Clone(faults), func(f chaosFault) bool { return !kinds.MatchString(f.name) })
}

// costly lets one costly fault happen after another until the round ends. The next one waits until all members agree.
func (ch *chaos) costly(t *testing.T, draw *rand.Rand) {
	faults := costlyFaults
	if ch.size == len(rig.Lab.Nodes()) { // each node has one member, and there is one lane
		faults = slices.Concat(faults, nodeFaults)
	}
	if !ch.brief {
		faults = slices.Concat(faults, longFaults)
	}
	if !ch.brief && ch.size == len(rig.Lab.Nodes()) {
		faults = slices.Concat(faults, aloneFaults, longNodeFaults)
	}
	faults = chosen(faults)
	for order := draw.Perm(len(faults)); len(order) > 0 && ch.goesOn(); order = append(order[1:], order[0]) {
		member := ch.choose(t, draw)
		ch.happen(t, faults[order[0]], member, draw)
		ch.cluster.Agree(t, ch.size, scaleWithin)
		ch.leave(member)
	}
}

// cheap lets one fault happen after another that takes no member away.
func (ch *chaos) cheap(t *testing.T, draw *rand.Rand, faults []chaosFault) {
	faults = chosen(faults)
	for order := draw.Perm(len(faults)); len(order) > 0 && ch.goesOn(); order = append(order[1:], order[0]) {
		if !ch.calm() {
			ch.happen(t, faults[order[0]], "", draw)
		}
		ch.lasts(t, time.Duration(500+draw.IntN(3000))*time.Millisecond)
	}
}

// goesOn says whether more faults begin.
func (ch *chaos) goesOn() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return !ch.changing.IsZero() || time.Now().Before(ch.end)
}

// calm says whether a change has met enough faults. The kubelet waits longer before each restart of a process that is killed again and
// again, up to five minutes. Without a pause, druid and the agents would not run long enough to complete a change.
func (ch *chaos) calm() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return !ch.changing.IsZero() && time.Since(ch.changing) > changeAmongFaults
}

// happen lets a fault happen and remembers it when it took effect.
func (ch *chaos) happen(t *testing.T, f chaosFault, member string, draw *rand.Rand) {
	t.Helper()
	began := time.Now()
	t.Logf("%s: %s", began.Format("15:04:05.000"), strings.TrimSpace(f.name+": "+member))
	f.do(t, ch, member, draw)
	if t.Failed() {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.happened == nil {
		ch.happened = map[string]int{}
	}
	ch.happened[f.name]++
}

// summary counts the faults by their kinds.
func (ch *chaos) summary() string {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	total, lines := 0, make([]string, 0, len(ch.happened))
	for _, name := range slices.Sorted(maps.Keys(ch.happened)) {
		total += ch.happened[name]
		lines = append(lines, fmt.Sprintf("%d × %s", ch.happened[name], name))
	}
	return fmt.Sprintf("%d faults of %d kinds: %s", total, len(lines), strings.Join(lines, ", "))
}

// lasts is the time that a fault lasts. Meanwhile the clients go on.
func (ch *chaos) lasts(t *testing.T, span time.Duration) {
	t.Helper()
	harness.Consistently(t, span, "clients read and write", func(context.Context) error {
		if ch.history == nil {
			return nil // the history ended, and a writer writes
		}
		return ch.history.Running()
	})
}

// knownMember is what the API server last had of a member. Faults happen by it while the API server is down.
type knownMember struct{ podUID, node string }

// learn asks the API server for the members, unless it is down.
func (ch *chaos) learn(t *testing.T) {
	t.Helper()
	if !ch.api.TryRLock() {
		return
	}
	defer ch.api.RUnlock()
	known := map[string]knownMember{}
	harness.Eventually(t, healWithin, "the Pods of all members", func(ctx context.Context) error {
		clear(known)
		return ch.eachPod(ctx, func(pod *corev1.Pod) error {
			known[pod.Name] = knownMember{string(pod.UID), pod.Spec.NodeName}
			return nil
		})
	})
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.known = known
}

func (ch *chaos) about(member string) knownMember {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.known[member]
}

// choose draws a member that no other fault hits.
func (ch *chaos) choose(t *testing.T, draw *rand.Rand) string {
	t.Helper()
	ch.learn(t)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	members := slices.DeleteFunc(slices.Sorted(maps.Keys(ch.known)), func(m string) bool { return ch.hit[m] })
	member := members[draw.IntN(len(members))]
	ch.hit[member] = true
	return member
}

// anyMember picks a member, another one each time. Other faults can hit it at the same time.
func (ch *chaos) anyMember(draw *rand.Rand) func() string {
	return func() string {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		members := slices.Sorted(maps.Keys(ch.known))
		return members[draw.IntN(len(members))]
	}
}

func (ch *chaos) leave(member string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.hit, member)
}
