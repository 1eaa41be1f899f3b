package e2e

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/states"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/rig/lab"
	"github.com/etcd-druid/druid/test/ui/browser"
)

const (
	// verbWithin is the time for one verb. To list the backups of a store that refuses connections takes longer than an attempt of
	// harness.Eventually.
	verbWithin = time.Minute
	// leaseSlack is more than the time by which a Lease can be late, for the plugin.
	leaseSlack = 20 * time.Second
	// serving is the word for a cluster that is well.
	serving = "● Serving"
	// storyOfStates is where the golden files are.
	storyOfStates = "testdata/states"
	reportFile    = "report.tar.gz"
)

// onlyFirstBackups has schedules on which nothing is due while a story runs.
func onlyFirstBackups(c *v1alpha1.EtcdCluster) {
	const rarely = "0 0 29 2 *"
	c.Spec.Backup.Full.Schedule, c.Spec.Backup.Verify.Schedule = rarely, rarely
}

// TestFiveStatesAreShown: each verb, and the web page, show what is wrong and what to do.
// A cluster with backups goes through five states. In each of them, the output of the verbs is that of the golden files, and a browser that
// stays open shows the state.
func TestFiveStatesAreShown(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.Named(demo), harness.StorageClass(lab.NetworkClass), backedUp(s3.Store(bucket)), onlyFirstBackups,
		recovers(v1alpha1.RecoverySpec{}))
	s := &shownStates{
		p: pluginOf{c}, s3: s3, page: openWebPage(t, pluginOf{c}), file: filepath.Join(t.TempDir(), reportFile), upgrade: rig.EtcdVersion(t, "3.7"),
	}
	s.names, s.restFor = s.namesOf(t), c.AgentTimings(t).LeaseDuration+leaseSlack
	c.Agree(t, 3, formWithin)
	s.opensOnThePage(t)
	stories.Resting(t, func() { // the first verification does not wait for the schedule
		awaitCondition(t, c, v1alpha1.ConditionBackupVerified, metav1.ConditionTrue, verificationWithin, "")
	})
	awaitBackups(t, c)
	for _, state := range []struct {
		name, word string
		// advice is what the web page and status say to do.
		advice []string
		// begin brings the state about, and end ends it.
		begin func(t *testing.T, s *shownStates) (end func())
	}{
		{"healthy", serving, []string{"Nothing to do."}, isHealthy},
		{"backup-failing", "✖ BackupsFailing", []string{"Correct the credentials of the backup store"}, backupsFail},
		{"degraded", "✖ Degraded", []string{"<broken>"}, memberCannotStart},
		{"paused", "● Paused", []string{"Resume the cluster when you need it.", "resume demo"}, isPaused},
		{"quorum-lost", "✖ QuorumLost", []string{"Bring back the nodes or volumes", "recover demo", "Do not delete a PersistentVolumeClaim"}, losesItsQuorum},
	} {
		ended := false
		t.Run(state.name, func(t *testing.T) {
			s.state = state.name
			end := state.begin(t, s)
			got := s.atRest(t, state.word)
			for _, verb := range slices.Sorted(maps.Keys(got)) {
				golden.File(t, s.goldenOf(verb), got[verb])
			}
			s.onThePage(t, state.word, adviceOf(got["status"]), state.advice)
			end()
			ended = true
		})
		if !ended {
			return
		}
	}
	deleteCluster(t, c, metav1.DeletePropagationForeground)
	awaitEnd(t, c)
}

// shownStates runs the verbs for a cluster, and opens its web page.
type shownStates struct {
	p    pluginOf
	s3   *harness.S3
	page *browser.Tab
	// state is the name of the state, and refused are commands that the verbs refuse in it.
	state   string
	refused []string
	// file is where reports are written.
	file string
	// names are those of the story, and members those of the state.
	names, members states.Names
	// restFor is how long the output must stay the same.
	restFor time.Duration
	// upgrade is the version of etcd that upgrade previews.
	upgrade string
}

// namesOf are the names that no state changes.
func (s *shownStates) namesOf(t *testing.T) states.Names {
	t.Helper()
	store, _, _ := strings.Cut(s.s3.String(), "/")
	names := states.Names{s.p.Namespace: "default", store: "store", " --kubeconfig " + rig.Lab.KubeconfigPath(): "", s.file: reportFile}
	pods, err := rig.DruidPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		names[pod.Name] = "<druid>"
	}
	return names
}

// replaced are all names.
func (s *shownStates) replaced() states.Names {
	names := maps.Clone(s.names)
	maps.Copy(names, s.members)
	return names
}

// steady is a text without what differs from run to run.
func (s *shownStates) steady(text string) string { return states.Steady(text, s.replaced()) }

// rolesOf names the members by their role in a view.
func rolesOf(view harness.View) states.Names {
	names := states.Names{}
	for member := range view.Members {
		names[member] = "<follower>"
	}
	names[view.Leader()] = "<leader>"
	return names
}

func isHealthy(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	view := s.p.Agree(t, 3, healWithin)
	s.members = rolesOf(view)
	s.refused = []string{"move-leader demo " + view.Leader(), "resume demo --replicas 3"}
	return func() {
		s.changes(t, 0, "snapshot", "--wait")
		s.changes(t, 0, "move-leader", view.Follower())
		s.changes(t, 0, "replace", view.Follower())
		s.changes(t, 0, "replace", "--cancel")
		s.p.Agree(t, 3, healWithin)
	}
}

// backupsFail makes the credentials of the store wrong, and writes what cannot be saved.
func backupsFail(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	c := s.p.Cluster
	s.members, s.refused = rolesOf(c.Agree(t, 3, healWithin)), nil
	restore, etcd := s.s3.Revoke(t, c.Namespace), c.Etcd(t)
	stories.Resting(t, func() {
		harness.Eventually(t, healWithin, "BackupReady is False", func(ctx context.Context) error {
			if _, err := etcd.Put(ctx, "not", "saved"); err != nil {
				return err
			}
			cluster, err := c.Get(ctx)
			if err == nil && !meta.IsStatusConditionFalse(cluster.Status.Conditions, v1alpha1.ConditionBackupReady) {
				err = errors.New("it is not")
			}
			return err
		})
	})
	return func() {
		s.changes(t, 1, "snapshot", "--wait")
		restore()
		stories.Resting(t, func() { awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionTrue, healWithin, "") })
		s.followsOnThePage(t, serving)
	}
}

// memberCannotStart keeps a follower from its volume. On a node-local volume, the kubelet would make its user the owner again.
func memberCannotStart(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	c := s.p.Cluster
	view := c.Agree(t, 3, healWithin)
	member := view.Follower()
	s.members = rolesOf(view)
	s.members[member] = "<broken>"
	s.refused = []string{"move-leader demo " + member}
	hold, volume := c.HoldDown(t, member), c.VolumeOf(t, member)
	volume.Refuse(t)
	former := string(c.MustPod(t, member).UID)
	hold.Release(t)
	awaitSuccessor(t, c, member, former)
	stories.Resting(t, func() {
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonMemberCannotStart, member)
	})
	return func() {
		s.changes(t, 0, "snapshot", "--wait")
		volume.Accept(t)
		s.followsOnThePage(t, serving)
		same(t, view, c.Agree(t, 3, healWithin))
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, metav1.ConditionFalse)
	}
}

func isPaused(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	c := s.p.Cluster
	s.changes(t, 0, "pause")
	c.AwaitCondition(t, scaleWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	s.members = states.Names{}
	for _, member := range c.MemberNames(t) {
		s.members[member] = "<kept>"
		s.refused = []string{"pause demo", "snapshot demo", "move-leader demo", "replace demo " + member}
	}
	return func() {
		s.changes(t, 0, "resume", "--replicas", "3")
		c.Agree(t, 3, scaleWithin)
		s.followsOnThePage(t, serving)
	}
}

// losesItsQuorum wipes the volumes of two members of three, which stay lost.
func losesItsQuorum(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	c := s.p.Cluster
	awaitBackups(t, c)
	view := c.Agree(t, 3, healWithin)
	members := c.MemberNames(t)
	survivor := members[2] // messages and notes are in the order of the names
	if survivor == view.Leader() {
		c.MoveLeader(t, members[0])
		c.Agree(t, 3, healWithin)
	}
	lost := allBut(t, c, survivor)
	s.members = states.Names{survivor: "<survivor>"}
	for _, member := range lost {
		s.members[member] = "<lost>"
	}
	s.refused = []string{"move-leader demo", "replace demo " + lost[0], "resume demo --replicas 3"}
	at := loseVolumes(t, c, lost...)
	stories.Resting(t, func() {
		awaitPlan(t, c, at)
		awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionFalse, healWithin, "")
	})
	return func() {
		s.changes(t, 0, "snapshot")
		proposed, err := c.Get(t.Context())
		if err != nil || proposed.Status.Recovery == nil || proposed.Status.Recovery.Plan == nil {
			t.Fatalf("no plan to approve: %v", err)
		}
		s.changes(t, 0, "recover", "--approve", proposed.Status.Recovery.Plan.Hash, "--wait")
		c.Agree(t, 3, healWithin)
		s.followsOnThePage(t, serving)
		s.changes(t, 0, "replace", lost[0], "--wait") // the new member can share a node with another, which the states before must not see
	}
}
