package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

var (
	chaosRounds = flag.Int("chaos.rounds", 1, "rounds of chaos, each with a cluster of its own")
	chaosFor    = flag.Duration("chaos.for", time.Minute, "for how long faults begin in a round; the validator bounds a round to about four minutes")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "seed of the chaos; 0 for one that the commit gives")
)

// Faults that overlap happen to a cluster while clients read, write and watch. Afterwards etcd's own validator finds no contradiction to
// the promises of etcd in what the clients did and saw. There is always a quorum, and all members agree at the end. Revisions that are
// drawn from the history are restored from the backups, with the keys that the members had. By hand, for longer
// and with another seed: make chaos ROUNDS=20 SEED=7
func TestFaultsThatOverlapBreakNoPromise(t *testing.T) {
	stories.Begin(t)
	seed := seedOr(*chaosSeed)
	for round := range *chaosRounds {
		t.Run(fmt.Sprintf("-chaos.seed %d", seed+uint64(round)), func(t *testing.T) { chaosRound(t, seed+uint64(round)) })
	}
}

func chaosRound(t *testing.T, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 0))
	size := []int{3, 5}[draw.IntN(2)]
	kind := []string{"etcd", "kubernetes"}[draw.IntN(2)]
	s3, namespace := withABucket(t)
	c := rig.ApplyIn(t, namespace, harness.TLS(leafLifetime), harness.Replicas(int32(size)), wholeLog, backedUp(s3.Store(bucket)))
	first := c.AwaitMembers(t, size, formWithin)
	awaitBackups(t, c)
	h := c.History(t, kind)
	h.Keep(t, c.MemberNames(t)...)
	s := c.Sample(t)
	ch := &chaos{cluster: c, history: h, store: s3, size: size, end: time.Now().Add(*chaosFor), hit: map[string]bool{}}
	t.Run("faults", func(t *testing.T) {
		for lane := range size - size/2 - 1 { // a quorum is left
			t.Run(fmt.Sprintf("costly %d", lane), func(t *testing.T) {
				t.Parallel()
				ch.costly(t, rand.New(rand.NewPCG(seed, uint64(1+lane))))
			})
		}
		t.Run("cheap", func(t *testing.T) {
			t.Parallel()
			ch.cheap(t, rand.New(rand.NewPCG(seed, 100)))
		})
	})
	if t.Failed() {
		return
	}
	last := c.AwaitMembers(t, size, scaleWithin)
	s.Stop(t)
	h.Keep(t, c.MemberNames(t)...)
	t.Logf("%d members of %s, traffic of %s, %d faults: %s", size, c, kind, len(ch.happened), strings.Join(ch.happened, ", "))
	t.Logf("clients: %s", h.Stop(t))
	if last.ClusterID != first.ClusterID {
		harness.Unsafe(t, "the cluster has ID %s, and had %s", last.ClusterID, first.ClusterID)
	}
	holdTheSame(t, c.Etcd(t), last)
	t.Logf("valid: %s", h.Validate(t))
	restoresMoments(t, c, s3, h, draw)
}

// wholeLog keeps etcd from compacting its log, so that the logs together have all entries.
func wholeLog(c *v1alpha1.EtcdCluster) {
	c.Spec.Etcd.SnapshotCount = new(int64(100_000_000))
}

// chaos is a round of faults.
type chaos struct {
	cluster *harness.Cluster
	history *harness.History
	store   *harness.S3
	size    int
	end     time.Time
	// api is held for writing while the API server is down. Faults that need it hold it for reading.
	api sync.RWMutex

	mu       sync.Mutex
	happened []string
	hit      map[string]bool
}

// chaosFault is one kind of fault. A costly fault has a member that it takes away for a time; for others, the name is empty.
type chaosFault struct {
	name string
	do   func(*testing.T, *chaos, string, *rand.Rand)
}

// costly lets one costly fault happen after another until the round ends. The next one waits until all members agree.
func (ch *chaos) costly(t *testing.T, draw *rand.Rand) {
	faults := costlyFaults
	if ch.size == len(rig.Lab.Nodes()) {
		faults = slices.Concat(faults, nodeFaults, aloneFaults) // each node has one member, and there is one lane
	}
	for order := draw.Perm(len(faults)); time.Now().Before(ch.end); order = append(order[1:], order[0]) {
		member := ch.choose(t, draw)
		ch.happen(t, faults[order[0]], member, draw)
		ch.cluster.Agree(t, ch.size, scaleWithin)
		ch.leave(member)
	}
}

// cheap lets one fault happen after another that takes no member away.
func (ch *chaos) cheap(t *testing.T, draw *rand.Rand) {
	for order := draw.Perm(len(cheapFaults)); time.Now().Before(ch.end); order = append(order[1:], order[0]) {
		ch.happen(t, cheapFaults[order[0]], "", draw)
		ch.lasts(t, time.Duration(500+draw.IntN(3000))*time.Millisecond)
	}
}

// happen lets a fault happen and remembers it.
func (ch *chaos) happen(t *testing.T, f chaosFault, member string, draw *rand.Rand) {
	t.Helper()
	t.Logf("%s: %s", time.Now().Format("15:04:05.000"), strings.TrimSpace(f.name+": "+member))
	ch.mu.Lock()
	ch.happened = append(ch.happened, f.name)
	ch.mu.Unlock()
	f.do(t, ch, member, draw)
}

// lasts is the time that a fault lasts. Meanwhile the clients go on.
func (ch *chaos) lasts(t *testing.T, span time.Duration) {
	t.Helper()
	harness.Consistently(t, span, "clients read and write", func(context.Context) error { return ch.history.Running() })
}

// choose draws a member that no other fault hits.
func (ch *chaos) choose(t *testing.T, draw *rand.Rand) string {
	t.Helper()
	ch.api.RLock()
	members := ch.cluster.MemberNames(t)
	ch.api.RUnlock()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	members = slices.DeleteFunc(members, func(m string) bool { return ch.hit[m] })
	member := members[draw.IntN(len(members))]
	ch.hit[member] = true
	return member
}

func (ch *chaos) leave(member string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.hit, member)
}
