package plugin

import (
	"encoding/json"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func release(t *testing.T, text string) versions.Version {
	t.Helper()
	v, ok := versions.Parse(text)
	if !ok {
		t.Fatalf("%s is no version", text)
	}
	return v
}

func TestThePreviewOfAnUpgradeInEachSituation(t *testing.T) {
	for _, s := range situations.All() {
		var out strings.Builder
		newPage(&out, situations.Now).upgrading(selection("").upgradingOf(s.Objects, view.Of(s.Objects, situations.Now), release(t, "3.7.3")), s.Objects.Cluster)
		golden.File(t, "testdata/upgrade/"+s.Name+".txt", out.String())
	}
}

// record is the Lease that says with which limit the raft group was formed.
func record(learners int) coordinationv1.Lease {
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "demo", Labels: map[string]string{leases.LabelCluster: "demo", leases.LabelComponent: string(leases.ComponentRecord)},
	}}
	r := leases.Record{ClusterID: 1, Phase: leases.PhaseFormed, Seed: situations.Members[0], Epoch: 1, FormedEpoch: 1, MaxLearners: learners,
		Members: situations.Members}
	if err := r.Encode(&lease); err != nil {
		panic(err)
	}
	return lease
}

func TestTheRulesOfVersionsDecide(t *testing.T) {
	if versions.Learners35 != leases.MaxLearners35 {
		t.Fatal("the rules of versions and the record of a raft group differ")
	}
	for name, test := range map[string]struct {
		from, to string
		change   func(*view.Objects)
		rule     string
		refused  string
		says     []string
	}{
		"a patch": {"3.6.14", "3.6.16", nil, "within-minor", "", []string{"replaces the Pod of demo-lgmkl: 3.6.14 to 3.6.16"}},
		"the next minor": {"3.6.16", "3.7.3", nil, "next-minor", "",
			[]string{"cannot request another minor version until all members run 3.7", "may have run 3.5"}},
		"a minor is skipped":   {"3.5.33", "3.7.3", nil, "skips-minors", "etcd 3.5.33 to 3.7.3: etcd supports upgrades by one minor at a time", nil},
		"an old release":       {"3.6.16", "3.6.11", nil, "floor-3.6", "etcd 3.6.11: older releases of 3.6", nil},
		"an unknown minor":     {"3.7.3", "3.8.0", nil, "unsupported-minor", "etcd 3.8.0: druid supports etcd 3.5 to 3.7", nil},
		"a release with a bug": {"3.6.16", "3.7.0", nil, "next-minor", "", []string{"etcd 3.7.0: watches leak memory"}},
		"down, and not known":  {"3.6.16", "3.5.33", nil, "minor-before", "", []string{"could not be read", "enables the downgrade", "format of 3.5"}},
		"down, formed on 3.5":  {"3.6.16", "3.5.33", func(o *view.Objects) { o.Leases = append(o.Leases, record(1)) }, "minor-before", "", nil},
		"down, formed on 3.6": {"3.6.16", "3.5.33", func(o *view.Objects) { o.Leases = append(o.Leases, record(16)) }, "learners",
			"formed with max-learners 16", nil},
		"members are behind": {"3.6.16", "3.7.3", func(o *view.Objects) { o.Cluster.Status.Members[1].Version, o.Leases[1].Annotations = "3.5.33", nil },
			"skips-minors", "etcd 3.5.33 to 3.7.3: etcd supports", []string{"The members run two minor versions"}},
		"without a backup": {"3.6.14", "3.6.16", func(o *view.Objects) { o.Cluster.Spec.Backup = nil }, "within-minor", "",
			[]string{"druid makes no backup first"}},
		"the only member": {"3.6.14", "3.6.16", func(o *view.Objects) { o.Cluster.Spec.Replicas = 1 }, "within-minor", "", []string{"The only member restarts"}},
		"the only one in a Pod": {"3.6.14", "3.6.16", func(o *view.Objects) {
			o.Cluster.Spec.Replicas, o.Cluster.Spec.Storage.Medium = 1, v1alpha1.StorageDisk
		}, "within-minor", "", []string{"druid does not replace the Pod of the only member", "Set spec.replicas to 3 first"}},
		"a long log of 3.5": {"3.6.16", "3.7.3", func(o *view.Objects) {
			o.Cluster.Spec.Etcd.SnapshotCount = new(int64(200_000))
			o.Leases = append(o.Leases, record(1))
		}, "long-log", "spec.etcd.snapshotCount is too large", nil},
	} {
		o := situation(t, "serving")
		o.Cluster.Spec.Version = test.from
		for i := range o.Cluster.Status.Members {
			o.Cluster.Status.Members[i].Version, o.Leases[i].Annotations[leases.Prefix+"version"] = test.from, test.from
		}
		if test.change != nil {
			test.change(&o)
		}
		u := selection("").upgradingOf(o, view.Of(o, situations.Now), release(t, test.to))
		refused := strings.Join(u.Refused, "; ")
		if u.Rule != test.rule || (test.refused == "") != (refused == "") || !strings.Contains(refused, test.refused) ||
			(refused != "") != (u.Verdict == versions.Refused) || (refused != "" || keepsOnlyData(o.Cluster)) != (len(u.Steps) == 0) {
			t.Errorf("%s: %s by %s, refused %q, %d steps", name, u.Verdict, u.Rule, refused, len(u.Steps))
		}
		var out strings.Builder
		newPage(&out, situations.Now).upgrading(u, o.Cluster)
		contains(t, out.String(), test.says...)
		if n := len(u.Members); n != 3 || u.Members[2].Name != "demo-bqdq7" {
			t.Errorf("%s: the leader is not last in %v", name, u.Members)
		}
	}
}

func TestAnUpgradeIsPreviewedAndRequested(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	before := s.read().GetResourceVersion()
	out, errs, code := s.run("upgrade", "demo", "3.7.3")
	if contains(t, out, "Change of etcd 3.6.16 to 3.7.3. Nothing was changed.", "EtcdSnapshot demo-before-3-7-3-2", "upgrade demo 3.7.3 --apply"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	out, _, code = s.run("upgrade", "demo", "3.5.33", "-o", "json")
	var u upgrading
	if err := json.Unmarshal([]byte(out), &u); err != nil || code != 0 || u.From != "3.6.16" || len(u.Members) != 3 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	for want, step := range map[string]struct {
		args []string
		code int
	}{
		"got 1 arguments, want the name of one EtcdCluster and a version of etcd": {[]string{"demo"}, 1},
		`"v3.7.3" is no version of etcd, want major.minor.patch`:                  {[]string{"demo", "v3.7.3"}, 1},
		`"3.07.3" is no version`:             {[]string{"demo", "3.07.3"}, 1},
		"spec.version is 3.6.16 already":     {[]string{"demo", "3.6.16"}, 1},
		"older releases of 3.6":              {[]string{"demo", "3.6.1"}, 2},
		"older releases of 3.6 replay promo": {[]string{"demo", "3.6.1", "--apply"}, 1},
		`"other" not found`:                  {[]string{"other", "3.7.3"}, 1},
	} {
		if out, errs, code := s.run(append([]string{"upgrade"}, step.args...)...); code != step.code || !strings.Contains(out+errs, want) {
			t.Errorf("%v: exit code %d, %s%s", step.args, code, out, errs)
		}
	}
	if s.read().GetResourceVersion() != before {
		t.Error("the EtcdCluster was written")
	}
	s.grant("operator", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get", "patch"}})
	s.eventually(func() bool {
		out, errs, code = s.run("upgrade", "demo", "3.7.3", "--apply", "--as", "operator")
		return code == 0
	})
	contains(t, out, "was 3.6.16 and is 3.7.3", "See the progress", "upgrade demo 3.6.16 --apply")
	if version, _, _ := unstructured.NestedString(s.read().Object, "spec", "version"); version != "3.7.3" {
		t.Errorf("spec.version is %s", version)
	}
	if _, errs, code = s.run("upgrade", "demo", "3.7.3", "--apply"); code != 1 || !strings.Contains(errs, "is 3.7.3 already, and members change") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestAnUpgradeThatWaitsSaysSo(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "backups-failing"))
	out, errs, code := s.run("upgrade", "demo", "3.7.3")
	if contains(t, out, "possible, and waits", "backups do not work", "AccessDenied"); code != codeNotWell || errs != "" {
		t.Errorf("exit code %d: %s", code, errs)
	}
	out, _, code = s.run("upgrade", "demo", "3.7.3", "--apply")
	if contains(t, out, "was 3.6.16 and is 3.7.3", "It waits: druid makes and verifies", "Note: After the first member has changed"); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestUnstartedUpgradeUndoneAtOnce: an upgrade that has not begun is undone without steps.
// druid judges what the members run. spec.version can be a version that no member has reached.
func TestUnstartedUpgradeUndoneAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*view.Objects)
		to     string
		rule   string
		says   string
		steps  int
	}{
		"no member changes": {nil, "3.6.16", "no-change", "possible: no member changes\n", 0},
		"one is unknown": {func(o *view.Objects) {
			o.Cluster.Status.Members[1].Version, o.Leases[1].Annotations = "", nil
		}, "3.6.16", "no-change", "no member that reports its version changes", 0},
		"a patch of what runs": {nil, "3.6.17", "within-minor", "3.6.16 to 3.6.17", 5},
		"one member is ahead": {func(o *view.Objects) {
			o.Cluster.Status.Members[1].Version, o.Leases[1].Annotations[leases.Prefix+"version"] = "3.7.3", "3.7.3"
		}, "3.6.16", "minor-before", "enables the downgrade", 4},
	} {
		o := situation(t, "serving")
		o.Cluster.Spec.Version = "3.7.3"
		if test.change != nil {
			test.change(&o)
		}
		u := selection("").upgradingOf(o, view.Of(o, situations.Now), release(t, test.to))
		if u.Rule != test.rule || len(u.Steps) != test.steps || u.Verdict != versions.Allowed {
			t.Errorf("%s: %s by %s, steps %q, refused %q", name, u.Verdict, u.Rule, u.Steps, u.Refused)
		}
		var out strings.Builder
		newPage(&out, situations.Now).upgrading(u, o.Cluster)
		contains(t, out.String(), test.says)
		if test.steps == 0 && strings.Contains(out.String(), "downgrade") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

func TestTheOnlyMemberHasNoOtherToLead(t *testing.T) {
	o := situation(t, "serving")
	o.Cluster.Spec.Replicas = 1
	u := selection("").upgradingOf(o, view.Of(o, situations.Now), release(t, "3.7.3"))
	if text := strings.Join(u.Steps, " "); strings.Contains(text, "Leadership moves") || !strings.Contains(text, "replaces the Pod of demo-bqdq7") {
		t.Error(text)
	}
	o.Cluster.Spec.Storage.Medium = v1alpha1.StorageDisk
	u = selection("").upgradingOf(o, view.Of(o, situations.Now), release(t, "3.7.3"))
	if len(u.Steps) != 0 || !u.blocked() || !strings.Contains(strings.Join(u.Waits, " "), "does not replace the Pod of the only member") {
		t.Errorf("steps %q, waits %q", u.Steps, u.Waits)
	}
}

// TestOnlyOtherVersionIsUpgrade: only a report of another version is a change under way.
func TestOnlyOtherVersionIsUpgrade(t *testing.T) {
	o := situation(t, "serving")
	for i := range o.Cluster.Status.Members {
		o.Cluster.Status.Members[i].Version, o.Leases[i].Annotations = "", nil
	}
	u := selection("").upgradingOf(o, view.Of(o, situations.Now), release(t, o.Cluster.Spec.Version))
	if err := selection("").requestableVersion(o.Cluster, u); err == nil || strings.Contains(err.Error(), "members change") {
		t.Error(err)
	}
}
