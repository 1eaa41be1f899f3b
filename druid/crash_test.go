package druid

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/crash/points"
)

// performance is a scenario in a namespace of its own, in which a druid dies at the point, or none does.
type performance struct {
	*stage
	scenario scenario
	point    string
	founders []string
}

func (p *performance) second() { p.stage.second(p.founders, p.scenario) }

// performances of one scenario. What needs no druid of its own is done by one for all of them.
type performances []*performance

func (all performances) second() {
	for _, p := range all {
		p.second()
	}
}

// startProcess runs a druid for all of them.
func (all performances) startProcess() *process {
	namespaces := make([]string, len(all))
	for i, p := range all {
		namespaces[i] = p.namespace
	}
	return all[0].startProcess("", namespaces...)
}

func TestADruidThatDiesAtAnyPointIsCarriedOn(t *testing.T) {
	t.Parallel()
	all := maps.Clone(crashScenarios)
	maps.Copy(all, restores)
	maps.Copy(all, replacements)
	for name, calls := range points.Scenarios(crash.Druid) {
		scenario, ok := all[name]
		if !ok {
			t.Fatalf("there is no scenario called %s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undisturbed := &performance{stage: anotherStage(t), scenario: scenario}
			all := performances{undisturbed}
			for _, point := range calls {
				all = append(all, &performance{stage: anotherStage(t), scenario: scenario, point: point})
			}
			all.eve()
			for _, p := range all[1:] {
				p.startProcess(p.point, p.namespace).endsAtItsPoint(p.second)
			}
			all.startProcess()
			want := undisturbed.rest(all.second)
			for _, p := range all[1:] {
				p.within("come out as if druid had not died at "+p.point, all.second, func() error {
					if diff := cmp.Diff(want, p.portrait(p.founders)); diff != "" {
						want = undisturbed.portrait(undisturbed.founders) // on a loaded machine it may have rested before its end
						return errors.New("(-undisturbed +got)\n" + diff)
					}
					return nil
				})
			}
		})
	}
}

// eve brings the namespaces to the moment at which the druids start that are to die.
func (all performances) eve() {
	if scenario := all[0].scenario; scenario.replicas > 0 {
		druid := all.startProcess()
		for _, p := range all {
			p.joins = scenario.joins
			if scenario.secured {
				p.createSecured()
				continue
			}
			p.createCluster("demo", scenario.replicas)
		}
		for _, p := range all {
			if p.founders = p.members("demo", int(scenario.replicas)); scenario.formed {
				p.form("demo", p.founders)
			}
		}
		for _, p := range all {
			if scenario.formed {
				p.within("serve", all.second, p.served)
			}
			if scenario.prepare != nil {
				p.beat = all.second
				scenario.prepare(p.stage, p.founders)
				p.beat = nil
			}
		}
		druid.kill()
	}
	for _, p := range all {
		p.joins = p.scenario.joins
		p.scenario.change(p.stage, p.founders)
	}
}

// rest is what the scenario comes to: what stays unchanged for three seconds, in which the renewals go on.
func (p *performance) rest(second func()) (last string) {
	same := 0
	reached := func() error { return p.scenario.reached(p.stage, p.founders) }
	p.within("come to rest", func() {
		second()
		if reached() != nil {
			last, same = "", 0
			return
		}
		if now := p.portrait(p.founders); now != last {
			last, same = now, 0
		}
		same++
	}, func() error {
		if err := reached(); err != nil {
			return err
		}
		if same < 4 || !strings.Contains(last, "\nEtcdCluster demo") || strings.Contains(last, "no conditions") {
			return errors.New(last)
		}
		return nil
	})
	return last
}

// finalBackups are the names of final backups, which end with what druid draws for each request.
var finalBackups = regexp.MustCompile(`before-restore-[0-9a-f]+`)

// portrait is everything in the namespace that druid makes, and what its status says, in words that two runs share: the
// names of members, which are random, are replaced by their order, those who were there on the eve before all others.
func (s *stage) portrait(founders []string) string {
	s.Helper()
	var lines []string
	for kind, list := range map[string]client.ObjectList{
		"Lease": &coordinationv1.LeaseList{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaimList{}, "Pod": &corev1.PodList{},
		"Service": &corev1.ServiceList{}, "ConfigMap": &corev1.ConfigMapList{}, "ServiceAccount": &corev1.ServiceAccountList{},
		"Role": &rbacv1.RoleList{}, "RoleBinding": &rbacv1.RoleBindingList{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudgetList{},
		"NetworkPolicy": &networkingv1.NetworkPolicyList{},
	} {
		if err := s.List(s.Context(), list, client.InNamespace(s.namespace)); err != nil {
			return err.Error()
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			lines = append(lines, line(kind, o.(client.Object)))
			return nil
		})
	}
	lines = append(lines, s.clusterLine(), s.snapshotLines())
	slices.Sort(lines)
	text := finalBackups.ReplaceAllString("\n"+strings.Join(lines, "\n")+"\n"+s.recordLine(), "before-restore-some")
	if record, err := s.record("demo"); err == nil {
		others := slices.DeleteFunc(record.Members, func(name string) bool { return slices.Contains(founders, name) })
		for i, name := range slices.Concat(founders, others) {
			text = strings.ReplaceAll(text, name, fmt.Sprint("member-", i))
		}
	}
	sorted := strings.Split(text, "\n")
	slices.Sort(sorted)
	return strings.Join(sorted, "\n")
}

// line is what an object is, without what differs between any two runs.
func line(kind string, o client.Object) string {
	var owners []string
	for _, by := range o.GetOwnerReferences() {
		owners = append(owners, fmt.Sprintf("%s %s controller %t", by.Kind, by.Name, by.Controller != nil && *by.Controller))
	}
	slices.Sort(owners)
	labels := maps.Clone(o.GetLabels())
	for key := range labels {
		if strings.HasSuffix(key, "uid") {
			labels[key] = "some"
		}
	}
	annotations := slices.DeleteFunc(slices.Sorted(maps.Keys(o.GetAnnotations())), func(key string) bool {
		return strings.HasPrefix(key, manifests.AnnotationCertificates) // a hint for the kubelet: without it, it looks a minute later
	})
	restarts := leases.ParseRepairing(o.GetAnnotations()[leases.AnnotationRepairing]).Restarts
	return fmt.Sprintf("%s %s of %q labels %v annotations %v finalizers %v restarts %d terminating %t",
		kind, o.GetName(), owners, labels, annotations, o.GetFinalizers(), restarts, o.GetDeletionTimestamp() != nil)
}

func (s *stage) clusterLine() string {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err.Error()
	}
	var conditions []string
	for _, condition := range c.Status.Conditions {
		if condition.Type == v1alpha1.ConditionDegraded {
			continue // it reports what waits for too long, so it depends on how fast the machine is
		}
		conditions = append(conditions, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Reason))
	}
	slices.Sort(conditions)
	if len(conditions) == 0 {
		conditions = []string{"no conditions"}
	}
	return fmt.Sprintf("EtcdCluster demo cluster %q size %d ready %d: %s",
		c.Status.ClusterID, c.Status.ClusterSize, c.Status.ReadyReplicas, strings.Join(conditions, ", "))
}

func (s *stage) snapshotLines() string {
	var list v1alpha1.EtcdSnapshotList
	if err := s.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		return err.Error()
	}
	text := "EtcdSnapshots"
	for _, snapshot := range list.Items {
		text += fmt.Sprintf(" %s %s %q %+v", snapshot.Name, snapshot.Status.Phase, snapshot.Status.Message, snapshot.Status.Artifact)
	}
	return text
}

func (s *stage) recordLine() string {
	r, err := s.record("demo")
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("record %s cluster %x epoch %d formed %d seed listed %t nonce %t members %d replacing %v retiring %v",
		r.Phase, r.ClusterID, r.Epoch, r.FormedEpoch, r.Lists(r.Seed), r.Nonce != "", len(r.Members), r.Replacing, r.PendingRemoval)
}

// served says whether the cluster's status is that of one which runs well.
func (s *stage) served() error {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionAllMembersReady) ||
		c.Status.ClusterID != leases.FormatID(clusterID) {
		return fmt.Errorf("status %+v", c.Status)
	}
	return nil
}
