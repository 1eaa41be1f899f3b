package plugin

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentcli "github.com/etcd-druid/druid/agent/cli"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// Lineages of the tests.
const (
	firstLineage  = catalog.Lineage("00000001-9f31c2d4")
	secondLineage = catalog.Lineage("00000002-51aa07be")
	thirdLineage  = catalog.Lineage("00000003-c0ffee00")
)

// listed are backups with two forks, a gap, and all notes.
func listed() backups {
	day := func(d, h int) time.Time { return time.Date(2026, 11, d, h, 0, 0, 0, time.UTC) }
	return backups{
		Namespace: "default", Cluster: "demo", Member: "demo-bqdq7", Store: "bucket backups at AWS region eu-central-1", Prefix: "default/demo",
		Lineages: []catalog.Summary{
			{
				Lineage: firstLineage, Formation: &catalog.Formation{Created: day(1, 8), Reason: "bootstrap", EtcdVersion: "3.6.15"}, Fulls: 21,
				Deltas: 1893, Finals: 1, Size: 3 << 30,
				Restorable: []catalog.Range{{From: 1, To: 30211, Since: day(1, 8), Until: day(14, 3)}, {From: 31000, To: 41877, Since: day(15, 0), Until: day(21, 9)}},
				Gaps:       []catalog.Gap{{From: 30212, To: 30999, Next: 31000}},
			},
			{
				Lineage: secondLineage, Formation: &catalog.Formation{Parent: firstLineage, Fork: 41870, Created: day(21, 10), Reason: "restore", EtcdVersion: "3.6.16"},
				Fulls: 2, Deltas: 12, Size: 210 << 20,
				Restorable: []catalog.Range{{From: 1_000_041_870, To: 1_000_042_001, Since: day(21, 10), Until: day(21, 19)}},
			},
			{
				Lineage: thirdLineage, Formation: &catalog.Formation{Parent: secondLineage, Fork: 1_000_042_001, Created: day(22, 3), Reason: "restore",
					EtcdVersion: "3.6.16"},
				Fulls: 3, Deltas: 301, Size: 612 << 20,
				Restorable: []catalog.Range{{From: 2_000_042_001, To: 2_000_048_211, Since: day(22, 3), Until: situations.Now.Add(-6 * time.Second)}},
			},
		},
		UnknownObjects: []string{"default/demo/README"},
	}
}

func TestTheTimelineOfBackups(t *testing.T) {
	for name, wide := range map[string]bool{"backups": false, "backups-wide": true} {
		var out strings.Builder
		newPage(&out, situations.Now).timeline(listed(), wide)
		golden.File(t, "testdata/"+name+".txt", out.String())
	}
}

// TestTheTimelineOfEachStore: each state of a store has a golden file.
func TestTheTimelineOfEachStore(t *testing.T) {
	for name, change := range map[string]func(*backups){
		"nothing": func(b *backups) { b.Lineages, b.UnknownObjects = nil, nil },
		"one-lineage": func(b *backups) {
			b.Lineages, b.UnknownObjects = b.Lineages[:1], nil
			b.Lineages[0].Gaps, b.Lineages[0].Finals = nil, 0
			b.Lineages[0].Restorable = []catalog.Range{{From: 1, To: 48211, Since: situations.Now.AddDate(0, 0, -2), Until: situations.Now.Add(-6 * time.Second)}}
		},
		"stopped": func(b *backups) { b.Lineages[2].Restorable[0].Until = situations.Now.Add(-12 * time.Minute) },
		"damaged-records": func(b *backups) {
			b.Lineages[0].Formation, b.Lineages[0].FormationProblem = nil, "it is not JSON"
			b.Lineages[1].Formation.Parent = "00000001-gone"
			b.Lineages[2].Lineage, b.Lineages[2].Restorable = "00000002-c0ffee00", nil
			b.UnknownObjects = append(b.UnknownObjects, "other")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := listed()
			change(&b)
			var out strings.Builder
			newPage(&out, situations.Now).timeline(b, false)
			golden.File(t, "testdata/backups/"+name+".txt", out.String())
		})
	}
}

// A record that names its own descendant as its parent must not hide a lineage, nor end the program.
func TestEachLineageIsShownOnce(t *testing.T) {
	all := listed().Lineages
	all[0].Formation.Parent = thirdLineage
	shown := branches(all)
	if len(shown) != 3 || shown[0].depth != 0 || shown[2].depth != 2 {
		t.Errorf("got %v", shown)
	}
}

// agentOf runs the program of the agents, with a configuration file of the test in the place of that in the container.
func agentOf(t *testing.T, b *config.Backup) func([]string, io.Writer, io.Writer) int {
	t.Helper()
	r := config.DefaultReloadable()
	r.Backup = b
	content, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), config.ConfigFile)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return func(command []string, stdout, stderr io.Writer) int {
		command = slices.Clone(command)
		if i := slices.Index(command, config.ConfigDir+"/"+config.ConfigFile); i > 0 {
			command[i] = file
		}
		log := slog.New(slog.DiscardHandler)
		root := agentcli.Root(log, new(slog.LevelVar))
		root.SetArgs(command[1:])
		root.SetOut(stdout)
		root.SetErr(stderr)
		return cli.Main(t.Context(), root, log)
	}
}

func directoryBackup(t *testing.T) (*config.Backup, store.Store) {
	t.Helper()
	path := t.TempDir()
	s, err := dir.Open(store.Directory{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: path}})
	if err != nil {
		t.Fatal(err)
	}
	return &config.Backup{
		Store: raw, Prefix: "default/demo", Full: config.Full{Schedule: "0 0 * * *"},
		Delta:     config.Delta{Period: config.Duration(10 * time.Second), MaxBytes: 8 << 20},
		Retention: config.Retention{Count: 1}, Verify: config.Verify{Schedule: "0 3 * * *"},
	}, s
}

// TestBackupsListedByLeadersAgent: backups are listed by the agent of the leader.
// The program that answers is that of the agents, and its store is a directory.
func TestBackupsListedByLeadersAgent(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	b, objects := directoryBackup(t)
	n.program = agentOf(t, b)
	_, errs, code := s.run("backups", "demo")
	if contains(t, errs, "list the backups of EtcdCluster "+s.namespace+"/demo: the agent of member demo-bqdq7: no backups in"); code != agentSaysNo ||
		strings.Contains(errs, "agent backup list") {
		t.Errorf("an empty store: exit code %d: %s", code, errs)
	}
	for _, f := range []catalog.Formation{{Lineage: firstLineage, ClusterID: "c", Created: situations.Now},
		{Lineage: secondLineage, Parent: firstLineage, Fork: 17, ClusterID: "d", Created: situations.Now}} {
		if err := catalog.WriteBootstrap(t.Context(), objects, b.Prefix, f); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := s.run("backups", "demo", "-o", "wide")
	if contains(t, out, s.namespace+"/demo  2 lineages", "the agent of member demo-bqdq7", "└ "+string(secondLineage), "2026-11-24T03:00:00Z   17 "); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	out, _, _ = s.run("backups", "demo", "-o", "json")
	var read backups
	if err := json.Unmarshal([]byte(out), &read); err != nil || len(read.Lineages) != 2 || read.Lineages[1].Formation.Fork != 17 || read.Namespace != s.namespace {
		t.Errorf("%v in %s", err, out)
	}
	out, _, _ = s.run("backups", "demo", "-o", "yaml")
	contains(t, out, "parent: "+string(firstLineage))
	for want, step := range map[string]struct {
		program func([]string, io.Writer, io.Writer) int
		args    []string
	}{
		"Upgrade druid, or see": {func(_ []string, _, stderr io.Writer) int {
			_, _ = io.WriteString(stderr, "agent backup list: unknown flag: --agent-config\n")
			return 1
		}, nil},
		"code 137, and said nothing": {func([]string, io.Writer, io.Writer) int { return 137 }, nil},
		"set spec.backup":            {agentOf(t, nil), nil},
		"Use the plugin of the versi": {func(_ []string, stdout, _ io.Writer) int {
			_, _ = io.WriteString(stdout, "no JSON")
			return 0
		}, nil},
		"--output is \"name\", want": {nil, []string{"-o", "name"}},
	} {
		n.program = step.program
		if _, errs, code := s.run(append([]string{"backups", "demo"}, step.args...)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s", want, code, errs)
		}
	}
}

// TestBackupsListedByOtherAgent: another agent is asked if the leader cannot be reached.
func TestBackupsListedByOtherAgent(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	o := onNode(situation(t, "serving"), name)
	o.Pods[0].Spec.NodeName = "" // the leader has no kubelet
	s.put(o)
	b, objects := directoryBackup(t)
	if err := catalog.WriteBootstrap(t.Context(), objects, b.Prefix,
		catalog.Formation{Lineage: firstLineage, ClusterID: "c", Created: situations.Now}); err != nil {
		t.Fatal(err)
	}
	n.program = agentOf(t, b)
	out, errs, code := s.run("backups", "demo")
	if contains(t, out, "the agent of member demo-lgmkl"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	s.grant("viewer", viewing...)
	s.eventually(func() bool {
		_, errs, code = s.run("backups", "demo", "--as", "viewer")
		return strings.Contains(errs, "pods/exec")
	})
	if contains(t, errs, "the agent of member demo-bqdq7", "forbidden"); code != 1 || strings.Contains(errs, "demo-lgmkl") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestWithoutAnAgentTheNextStepIsNamed(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	o := situation(t, "serving") // its Pods have no agent
	s.put(o)
	_, errs, code := s.run("backups", "demo")
	if contains(t, errs, "no agent can be reached: it has no Pod", " -n "+s.namespace+" get pods -l etcd.druid.dev/cluster=demo", "command-line.md"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	other := newStage(t, env.APIServer(t))
	other.put(situation(t, "without-backup"))
	_, errs, code = other.run("backups", "demo")
	if contains(t, errs, "it has no spec.backup"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	paused := newStage(t, env.APIServer(t))
	paused.put(situation(t, "paused"))
	for verb, says := range map[string]string{"backups": "it is paused. To resume it: kubectl druid", "logs": "is paused: it has no Pod"} {
		if _, errs, code = paused.run(verb, "demo"); code != 1 || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, %s", verb, code, errs)
		}
	}
}

// The paths are those of the Pods that druid creates.
func TestTheAgentIsFoundInItsContainer(t *testing.T) {
	cluster := situation(t, "serving").Cluster
	pod, err := manifests.Pod(&cluster, "demo-bqdq7",
		manifests.Options{AgentImage: "registry.example.com/druid:v1", ClusterDomain: "cluster.local", Reloadable: config.DefaultReloadable()})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == containerAgent })
	if i < 0 || pod.Spec.InitContainers[i].Command[0] != agentPath {
		t.Fatalf("the containers are %v", pod.Spec.InitContainers)
	}
	if !slices.ContainsFunc(pod.Spec.InitContainers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == filepath.Dir(agentConfig) }) {
		t.Errorf("nothing is mounted for %s", agentConfig)
	}
	o := view.Objects{Cluster: cluster, Pods: []corev1.Pod{*pod, {ObjectMeta: metav1.ObjectMeta{Name: "another"}}}}
	if got := agentPods(o, view.Of(o, situations.Now)); len(got) != 1 || got[0] != "demo-bqdq7" {
		t.Errorf("the agents are in %v", got)
	}
}
