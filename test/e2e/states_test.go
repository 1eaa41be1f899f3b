package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/states"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/rig/lab"
)

const (
	// verbWithin is the time for one verb. To list the backups of a store that refuses connections takes longer than an attempt of
	// harness.Eventually.
	verbWithin = time.Minute
	// leaseSlack is more than the time by which a Lease can be late, for the plugin.
	leaseSlack = 20 * time.Second
	// storyOfStates is where the golden files are.
	storyOfStates = "testdata/states"
	reportFile    = "report.tar.gz"
)

// onlyFirstBackups has schedules on which nothing is due while a story runs.
func onlyFirstBackups(c *v1alpha1.EtcdCluster) {
	const rarely = "0 0 29 2 *"
	c.Spec.Backup.Full.Schedule, c.Spec.Backup.Verify.Schedule = rarely, rarely
}

// TestFiveStatesAreShown: each verb that reads, and the web page, show what is wrong and what to do.
// A cluster with backups goes through five states. In each of them, the output of the verbs is that of the golden files.
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
		{"healthy", "● Serving", []string{"Nothing to do."}, isHealthy},
		{"backup-failing", "✖ BackupsFailing", []string{"Correct the credentials of the backup store"}, backupsFail},
		{"degraded", "✖ Degraded", []string{"<broken>"}, memberCannotStart},
		{"paused", "● Paused", []string{"Resume the cluster when you need it.", "resume demo"}, isPaused},
		{"quorum-lost", "✖ QuorumLost", []string{"Bring back the nodes or volumes", "recover demo", "Do not delete a PersistentVolumeClaim"}, losesItsQuorum},
	} {
		ended := false
		t.Run(state.name, func(t *testing.T) {
			end := state.begin(t, s)
			got := s.atRest(t, state.word)
			for _, verb := range slices.Sorted(maps.Keys(got)) {
				golden.File(t, filepath.Join(storyOfStates, state.name, verb+".txt"), got[verb])
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
	page *webPage
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
	s.members = rolesOf(s.p.Agree(t, 3, healWithin))
	return func() {}
}

// backupsFail makes the credentials of the store wrong, and writes what cannot be saved.
func backupsFail(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	c := s.p.Cluster
	s.members = rolesOf(c.Agree(t, 3, healWithin))
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
		restore()
		stories.Resting(t, func() { awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionTrue, healWithin, "") })
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
	hold, volume := c.HoldDown(t, member), c.VolumeOf(t, member)
	volume.Refuse(t)
	former := string(c.MustPod(t, member).UID)
	hold.Release(t)
	awaitSuccessor(t, c, member, former)
	stories.Resting(t, func() {
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonMemberCannotStart, member)
	})
	return func() {
		volume.Accept(t)
		same(t, view, c.Agree(t, 3, healWithin))
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionDegraded, metav1.ConditionFalse)
	}
}

func isPaused(t *testing.T, s *shownStates) (end func()) {
	t.Helper()
	c := s.p.Cluster
	s.acts(t, "pause", c.Name)
	c.AwaitCondition(t, scaleWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	s.members = states.Names{}
	for _, member := range c.MemberNames(t) {
		s.members[member] = "<kept>"
	}
	return func() {
		s.acts(t, "resume", c.Name, "--replicas", "3")
		c.Agree(t, 3, scaleWithin)
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
	at := loseVolumes(t, c, lost...)
	stories.Resting(t, func() {
		awaitPlan(t, c, at)
		awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionFalse, healWithin, "")
	})
	return func() {}
}

// acts runs a verb that changes the cluster. druid writes the status meanwhile, so that a request can be refused.
func (s *shownStates) acts(t *testing.T, args ...string) {
	t.Helper()
	harness.Eventually(t, time.Minute, strings.Join(args, " "), func(ctx context.Context) error {
		if stdout, stderr, code := s.p.run(ctx, "", slices.Clone(args)...); code != 0 {
			return fmt.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
		return nil
	})
}

// verbs are those that read, by the name of their golden file.
func (s *shownStates) verbs() map[string][]string {
	name := s.p.Name
	return map[string][]string{
		"get": {"get"}, "get-wide": {"get", "--output", "wide"}, "status": {"status", name}, "why": {"why", name}, "backups": {"backups", name},
		"recover": {"recover", name}, "check": {"check", name}, "connect": {"connect", name}, "logs": {"logs", name, "--tail", "20"},
		"version": {"version"}, "upgrade": {"upgrade", name, s.upgrade}, "restore": {"restore", name, "--latest"},
	}
}

// atRest returns what the verbs print in a state, without what differs from run to run, once it stays the same.
func (s *shownStates) atRest(t *testing.T, word string) (got map[string]string) {
	t.Helper()
	since := time.Now()
	harness.Eventually(t, healWithin, "the output at rest", func(context.Context) error {
		now := s.round(t)
		if !maps.Equal(got, now) {
			diff := cmp.Diff(got, now)
			got, since = now, time.Now()
			return fmt.Errorf("it changed:\n%s", diff)
		}
		if !strings.Contains(got["status"], word) {
			return fmt.Errorf("status does not have %q:\n%s", word, got["status"])
		}
		if time.Since(since) < s.restFor {
			return errors.New("it did not change")
		}
		return nil
	})
	return got
}

// round runs each verb once.
func (s *shownStates) round(t *testing.T) map[string]string {
	t.Helper()
	printed := map[string]string{"report": s.report(t)}
	for verb, args := range s.verbs() {
		shown := asPrinted
		if verb == "logs" {
			shown = func(stdout string) string { return states.LogSources(stdout, s.replaced()) }
		}
		printed[verb] = s.run(t, args, shown)
	}
	return printed
}

func asPrinted(stdout string) string { return stdout }

// run returns a command and what it prints, as in a terminal.
func (s *shownStates) run(t *testing.T, args []string, shown func(stdout string) string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), verbWithin)
	defer cancel()
	stdout, stderr, code := s.p.run(ctx, "", slices.Clone(args)...)
	return s.steady(fmt.Sprintf("$ kubectl druid %s\n%s%s[exit code %d]\n", strings.Join(args, " "), shown(stdout), stderr, code))
}

// report writes a report, and returns what the verb prints and which files about the cluster are in the report.
func (s *shownStates) report(t *testing.T) string {
	t.Helper()
	printed := s.run(t, []string{"report", s.p.Name, "--output", s.file}, asPrinted)
	found, err := unpacked(s.file)
	if err := errors.Join(err, os.Remove(s.file)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range found {
		// How often a container was restarted differs, and druid is not of this story alone.
		if strings.HasPrefix(name, s.p.Namespace+"/") && !strings.Contains(name, ".previous.") {
			names = append(names, s.steady(name))
		}
	}
	slices.Sort(names)
	return printed + strings.Join(slices.Compact(names), "\n") + "\n"
}
