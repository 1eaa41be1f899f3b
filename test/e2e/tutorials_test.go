package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// The cluster of all pages.
const demo = "demo"

func TestTutorialOfTheFirstClusterIsTrue(t *testing.T) {
	stories.Begin(t)
	openPage(t, "tutorials/first-cluster.md", rig.Expect(t, rig.MakeNamespace(t), demo)).follow(t)
}

func TestTutorialOfALostDiskIsTrue(t *testing.T) {
	stories.Begin(t)
	c := rig.Expect(t, rig.MakeNamespace(t), demo)
	p := openPage(t, "tutorials/lose-a-disk.md", c)
	p.replaced["go run ./test/rig kubectl --"] = "kubectl"
	var view harness.View
	var loser string
	p.before["kubectl get leases -l etcd.druid.dev/cluster=demo"] = func() {
		view = c.Agree(t, 3, formWithin)
		loser = view.Follower()
		p.replaced["demo-qtd87"], p.replaced["demo-svg4g"] = view.Leader(), loser
	}
	p.before["kubectl exec demo-svg4g -c etcd -- etcdctl get story"] = func() {
		replaced(t, view, awaitReplacement(t, c, loser, view), loser)
	}
	p.follow(t)
}

func TestTutorialOfBackupAndRestoreIsTrue(t *testing.T) {
	stories.Begin(t)
	s3 := rig.StartS3(t)
	s3.MakeBucket(t, bucket)
	c := rig.Expect(t, rig.MakeNamespace(t), demo)
	restored := rig.Expect(t, c.Namespace, "restored")
	p := openPage(t, "tutorials/back-up-and-restore.md", c)
	p.replaced["<ID>"], p.replaced["<key>"] = s3.Credentials()
	store := s3.Store(bucket).S3
	p.before["kubectl apply -f docs/samples/backup.yaml"] = func() {
		p.edit(t, "docs/samples/backup.yaml", inBucket(store.Bucket, store.Endpoint)...)
	}
	p.excerpt = func(t *testing.T, text string) {
		p.edit(t, "docs/samples/restore.yaml", append(inBucket(store.Bucket, store.Endpoint), `time: "2026-11-21T18:54:00Z"`, "revision: 2")...)
		if sample := p.withoutComments(t, "docs/samples/restore.yaml"); !strings.Contains(sample, text) {
			t.Errorf("the sample with the changes of the page is\n%s\nand the page shows\n%s", sample, text)
		}
	}
	var before, after harness.View
	p.before["kubectl apply -f docs/samples/restore.yaml"] = func() { before = c.Agree(t, 3, formWithin) }
	p.before["kubectl delete etcdcluster demo restored"] = func() { after = restored.Agree(t, 3, formWithin) }
	p.follow(t)
	if before.ClusterID == after.ClusterID {
		t.Errorf("the restored cluster has the ID %s of the former one", after.ClusterID)
	}
	if keys := s3.Keys(t, bucket, "etcd/"+c.Namespace+"/"+demo+"/"); len(keys) == 0 {
		t.Error("the bucket has no backups where the page says")
	}
}

// inBucket are the edits of a sample for a bucket of a store that is not AWS.
func inBucket(name, endpoint string) []string {
	return []string{
		"bucket: my-backups", "bucket: " + name,
		"# endpoint: https://minio.example.com:9000", "endpoint: " + endpoint,
		"# forcePathStyle: true", "forcePathStyle: true",
	}
}

// edit replaces pairs of text in a file of the reader. Each has to be there once.
func (p *page) edit(t *testing.T, file string, pairs ...string) {
	t.Helper()
	path := filepath.Join(p.dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read sample: %v", err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if n := strings.Count(string(text), pairs[i]); n != 1 {
			t.Fatalf("%s has %q %d times, want once", file, pairs[i], n)
		}
	}
	if err := os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600); err != nil {
		t.Fatalf("write sample: %v", err)
	}
}

// withoutComments is a file of the reader without the comments at the ends of its lines.
func (p *page) withoutComments(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		t.Fatalf("read sample: %v", err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, " #")
	}
	return strings.Join(lines, "\n")
}
