package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/cli/backup"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

var (
	restorePoints = flag.Int("restore.points", 3, "restores in place of one cluster to drawn revisions and moments, about 50 seconds each")
	restoreSeed   = flag.Uint64("restore.seed", 0, "seed of the drawn revisions and moments; 0 for one that the commit gives")
)

// clockSlack is how much later than etcd's clients the agent sees a change on a busy machine, and the largest age of a delta backup.
const clockSlack = 10 * time.Second

// One cluster is restored in place again and again under a writer, to revisions and moments of all its lineages. After each restore, the
// cluster has the keys that a watch saw at that point. Each member has the HashKV of an etcd on what `agent backup restore` makes of the
// same backups, and a cache that listed again equals the store. By hand:
// go test ./test/e2e -run DrawnMoments -timeout 0 -v -args -restore.points 20 -restore.seed 7
func TestRestoreToDrawnMoments(t *testing.T) {
	stories.Begin(t)
	seed := seedOr(*restoreSeed)
	t.Logf("-restore.seed %d", seed)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.Version(rig.EtcdVersion(t, etcdOfPoints)), harness.TLS(24*time.Hour), backedUp(s3.Store(bucket)))
	d := drawn{cluster: c, store: s3, draw: rand.New(rand.NewPCG(seed, 3)), view: c.AwaitMembers(t, 3, formWithin), past: map[string]harness.Span{}}
	harness.Churn(t, c.EtcdService(t), 5)
	d.writer, d.cache = harness.Write(t, c.EtcdService(t)), harness.StartCache(t, "of the history", c.EtcdService(t))
	d.writer.MayLose()
	awaitBackups(t, c)
	for i := range *restorePoints {
		if !t.Run(fmt.Sprint(i), d.restores) {
			return
		}
	}
}

// etcdOfPoints is the minor version of the cluster, and of the etcds with which it is compared.
const etcdOfPoints = "3.6"

// drawn is a cluster that is restored in place again and again.
type drawn struct {
	cluster *harness.Cluster
	store   *harness.S3
	draw    *rand.Rand
	writer  *harness.Writer
	cache   *harness.Cache
	view    harness.View
	// past is what the cache saw of the lineages that restores replaced, and lineages their names in order.
	past     map[string]harness.Span
	lineages []string
	last     v1alpha1.LastRecovery
}

// point is a state to restore. Exactly one of revision and at is set.
type point struct {
	lineage  string // empty for the present one
	revision int64
	at       time.Time
}

// request is the point as spec.recovery.restore.
func (p point) request() string {
	fields := map[string]any{"revision": nil, "time": nil, "lineage": nil}
	if p.lineage != "" {
		fields["lineage"] = p.lineage
	}
	if p.revision > 0 {
		fields["revision"] = p.revision
	} else {
		fields["time"] = p.at.UTC().Format(time.RFC3339)
	}
	text, _ := json.Marshal(fields) // words and numbers
	return string(text)
}

// restores draws a point, restores it in place, and compares.
func (d *drawn) restores(t *testing.T) {
	c := d.cluster
	d.writer.AwaitWrites(t, 100+d.draw.IntN(200), scaleWithin)
	awaitBackups(t, c)
	saved := c.Revision(t)
	c.AwaitSaved(t, saveWithin, saved)
	p := d.choose(t, saved)
	d.writer.Gap()
	requestRestore(t, c, p.request())
	approved := approve(t, awaitRestorePlan(t, c))
	last := awaitRestored(t, c, d.writer, approved, d.view, d.last.Epoch)
	t.Logf("clients were cut off for %s", d.writer.Gap().Round(100*time.Millisecond))
	d.cache.AwaitLists(t, len(d.lineages)+2)
	d.past[last.Replaced] = d.cache.Spans()[len(d.lineages)]
	d.lineages = append(d.lineages, last.Replaced)
	d.cache.Equals(t, c.Etcd(t))
	d.view, d.last = c.AwaitMembers(t, 3, healWithin), last
	d.compares(t, p)
	requestRestore(t, c, "null")
}

// choose draws a revision or a moment of the present lineage, up to the revision saved, or of a lineage that a restore replaced.
func (d *drawn) choose(t *testing.T, saved int64) (p point) {
	t.Helper()
	span := d.cache.Spans()[len(d.lineages)]
	if n := d.draw.IntN(len(d.lineages) + 1); n < len(d.lineages) {
		p.lineage = d.lineages[n]
		span, saved = d.past[p.lineage], d.past[p.lineage].Last()
	}
	// The final backup lacks what clients write over open connections after it. So does the last tenth.
	last := min(saved, span.Revision+(span.Last()-span.Revision)*9/10)
	p.revision = span.Revision + 1 + d.draw.Int64N(last-span.Revision)
	if d.draw.IntN(2) == 0 {
		for _, change := range span.Changes {
			if change.Revision >= p.revision {
				p = point{lineage: p.lineage, at: change.Seen.Truncate(time.Second).Add(time.Second)}
				break
			}
		}
	}
	t.Logf("restore %+v of revisions %d to %d", p, span.Revision, span.Last())
	return p
}

// compares checks what the restored cluster has.
func (d *drawn) compares(t *testing.T, p point) {
	t.Helper()
	last, parent := d.last, d.past[d.last.Parent]
	if want := p.lineage; want != "" && last.Parent != want || p.revision > 0 && last.Fork != p.revision {
		t.Fatalf("status.recovery.last is %+v, want %+v", last, p)
	}
	if !p.at.IsZero() {
		d.isThatMoment(t, parent, p.at)
	}
	want, has := parent.At(last.Fork)
	if !has {
		t.Fatalf("the cache did not see revision %d of lineage %s", last.Fork, last.Parent)
	}
	etcd := d.cluster.Etcd(t)
	got := valuesAt(t, etcd, last.Revision)
	if diff := cmp.Diff(got, want); diff != "" {
		harness.Unsafe(t, "the restore of %+v brought other keys back than revision %d of lineage %s had (-restored +had)\n%s", p, last.Fork, last.Parent, diff)
	}
	m := d.restoresAlone(t)
	defer m.Stop(t)
	if diff := cmp.Diff(valuesAt(t, m.Client, last.Revision), want); diff != "" {
		harness.Unsafe(t, "agent backup restore brought other keys back (-restored +had)\n%s", diff)
	}
	hash := hashAt(t, m.Client, m.Endpoint, last.Revision)
	for name := range d.view.Members {
		if got := hashAt(t, etcd, harness.Endpoint(name), last.Revision); got != hash {
			harness.Unsafe(t, "member %s has %+v, and an etcd on the same backups has %+v", name, got, hash)
		}
	}
	holdTheSame(t, etcd, d.view)
	t.Logf("%d keys of revision %d of lineage %s were restored and compared", len(got), last.Fork, last.Parent)
}

// isThatMoment checks that the restore ended at most clockSlack away from a moment.
func (d *drawn) isThatMoment(t *testing.T, span harness.Span, at time.Time) {
	t.Helper()
	for _, change := range span.Changes {
		early, late := change.Seen.Before(at.Add(-clockSlack)), change.Seen.After(at.Add(clockSlack))
		if restored := change.Revision <= d.last.Fork; early && !restored || late && restored {
			harness.Unsafe(t, "revision %d was seen at %s, and the restore to %s ended with revision %d", change.Revision, change.Seen, at, d.last.Fork)
			return
		}
	}
}

// restoresAlone runs an etcd on what the command restores from the backups, up to the revision that the cluster was restored to.
func (d *drawn) restoresAlone(t *testing.T) *member.Member {
	t.Helper()
	copied, at, url := filepath.Join(t.TempDir(), "bucket"), filepath.Join(t.TempDir(), "data"), "http://"+machine.Address(t)
	d.store.Copy(t, bucket, copied)
	var out bytes.Buffer
	command := backup.Command()
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs([]string{
		"restore", "--store", "dir://" + copied, "--prefix", d.cluster.Namespace + "/" + d.cluster.Name, "--lineage", d.last.Parent,
		"--revision", strconv.FormatInt(d.last.Fork, 10), "--bump", strconv.FormatInt(d.last.Revision-d.last.Fork, 10),
		"--data-dir", at, "--etcd-version", etcdOfPoints, "--member", member.Name, "--initial-advertise-peer-urls", url,
	})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("agent backup restore: %v\n%s", err, out.String())
	}
	return member.Start(t, etcdOfPoints, member.Options{Dir: at, PeerURL: url})
}

// valuesAt are all keys at a revision.
func valuesAt(t *testing.T, etcd *clientv3.Client, revision int64) map[string]harness.Value {
	t.Helper()
	var keys map[string]harness.Value
	harness.Eventually(t, healWithin, fmt.Sprintf("the keys at revision %d", revision), func(ctx context.Context) error {
		answer, err := etcd.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(revision))
		if err != nil {
			return err
		}
		keys = harness.ValuesOf(answer)
		return nil
	})
	return keys
}

// hash is the HashKV of an etcd, and the revision at which it was compacted.
type hash struct {
	compacted int64
	sum       uint32
}

func hashAt(t *testing.T, etcd *clientv3.Client, endpoint string, revision int64) (h hash) {
	t.Helper()
	harness.Eventually(t, healWithin, "the hash of "+endpoint, func(ctx context.Context) error {
		answer, err := etcd.HashKV(ctx, endpoint, revision)
		if err != nil {
			return err
		}
		h = hash{compacted: answer.CompactRevision, sum: answer.Hash}
		return nil
	})
	return h
}
