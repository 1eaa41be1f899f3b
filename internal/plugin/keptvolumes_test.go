package plugin

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// claim creates the claim of a member, or the kept one of a removed member if member is empty.
func (s *stage) claim(name, member string) {
	s.Helper()
	labels := map[string]string{leases.LabelCluster: "demo"}
	if member != "" {
		labels[leases.LabelMember] = member
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")}},
		},
	}
	if _, err := s.typed.CoreV1().PersistentVolumeClaims(s.namespace).Create(s.Context(), claim, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func TestAReplacementKeepsTheVolume(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	out, _, code := s.run("replace", "demo", "demo-lgmkl", "--keep-volume")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	golden.File(t, "testdata/replace-keep-volume.txt", s.neutral(out))
	s.steps(v1alpha1.ReplaceAnnotation, step{[]string{"replace", "demo", "--keep-volume"}, 1, []string{"got 1 arguments"}, "demo-lgmkl"},
		step{[]string{"replace", "demo", "--cancel", "--keep-volume"}, 1, []string{"none of the others can be"}, "demo-lgmkl"})
	out, _, code = s.run("replace", "demo", "--cancel")
	if asked := s.read().GetAnnotations()[v1alpha1.ReplaceAnnotation]; code != 0 || asked != "" {
		t.Fatalf("exit code %d, and the annotation is %q", code, asked)
	}
	golden.File(t, "testdata/replace-cancel-kept.txt", s.neutral(out))
	s.steps(v1alpha1.KeepVolumeAnnotation,
		step{[]string{"replace", "demo", "demo-aaaaa", "--keep-volume"}, 1, []string{`"demo-aaaaa" is no member of it`, "Nothing was changed"}, "demo-lgmkl"},
		step{[]string{"replace", "demo", "demo-sx47z", "--keep-volume"}, 0, []string{"Its PersistentVolumeClaim stays"}, "demo-lgmkl,demo-sx47z"},
		step{[]string{"replace", "demo", "--cancel"}, 0, []string{"You withdrew"}, "demo-lgmkl,demo-sx47z"},
		step{[]string{"replace", "demo", "demo-sx47z"}, 0, []string{"Its PersistentVolumeClaim stays"}, "demo-lgmkl,demo-sx47z"},
	)
	for _, medium := range []v1alpha1.StorageMedium{v1alpha1.StorageMemory, v1alpha1.StorageDisk} {
		c := situation(t, "serving").Cluster
		if err := keepable(c); err != nil {
			t.Fatal(err)
		}
		c.Spec.Storage.Medium = medium
		if err := keepable(c); err == nil {
			t.Errorf("%s: a volume can be kept", medium)
		}
	}
}

func TestKeptVolumesAreListedAndDiscarded(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	refused := func(name string, says ...string) {
		t.Helper()
		_, errs, code := s.run("kept-volumes", "demo", "--discard", name)
		if contains(t, errs, append(says, "Nothing was deleted")...); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
	}
	s.claim("demo-lgmkl", "demo-lgmkl")
	out, _, _ := s.run("kept-volumes", "demo")
	contains(t, out, "druid kept no volume of a removed member of EtcdCluster "+s.namespace+"/demo.")
	refused("demo-gone1", "druid kept no volume of a removed member")
	s.claim("demo-gone1", "")
	s.claim("demo-gone2", "")
	out, _, code := s.run("kept-volumes", "demo", "--output", "json")
	if contains(t, out, `"member": "demo-gone1"`, `"member": "demo-gone2"`, `"size": "8Gi"`); code != 0 {
		t.Errorf("exit code %d", code)
	}
	refused("demo-lgmkl", "it is a present member")
	refused("demo-aaaaa", "druid kept no volume of it. It kept those of demo-gone1, demo-gone2")
	refused("", "druid kept no volume of it")
	_, errs, code := s.run("kept-volumes", "demo", "--output", "xml")
	if contains(t, errs, "xml"); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	out, errs, code = s.run("kept-volumes", "demo", "--discard", "demo-gone1")
	if contains(t, out, "You deleted PersistentVolumeClaim "+s.namespace+"/demo-gone1"); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	claims := s.typed.CoreV1().PersistentVolumeClaims(s.namespace)
	if claim, err := claims.Get(t.Context(), "demo-gone1", metav1.GetOptions{}); err == nil && claim.DeletionTimestamp == nil ||
		err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("claim is %+v, %v; want it to be deleted", claim, err)
	}
	refused("demo-gone1") // nothing is kept of it, or it is being deleted
	for _, stays := range []string{"demo-gone2", "demo-lgmkl"} {
		if claim, err := claims.Get(t.Context(), stays, metav1.GetOptions{}); err != nil || claim.DeletionTimestamp != nil {
			t.Errorf("claim %s is %+v, %v; want it to stay", stays, claim, err)
		}
	}
}

func TestKeptVolumesAreATable(t *testing.T) {
	claim := func(name string, deleted bool) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: situations.Now.Add(-time.Hour)}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
			Status:     corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Gi")}},
		}
		if deleted {
			c.DeletionTimestamp = &metav1.Time{Time: situations.Now}
		}
		return c
	}
	var out strings.Builder
	p := newPage(&out, situations.Now)
	p.keptVolumes(situation(t, "serving").Cluster, []corev1.PersistentVolumeClaim{claim("demo-gone1", false), claim("demo-gone2", true)})
	golden.File(t, "testdata/kept-volumes.txt", out.String())
	if _, err := keptOf(v1alpha1.EtcdCluster{}, []corev1.PersistentVolumeClaim{claim("demo-gone2", true)}, "demo-gone2"); err == nil {
		t.Error("a claim is deleted twice")
	}
}

// The rights of the documentation, and no more.
func TestKeptVolumesNeedListAndDelete(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	s.claim("demo-gone1", "")
	clusters := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get"}}
	claims := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"list"}}
	s.grant("viewer", clusters, claims)
	claims.Verbs = append(slices.Clone(claims.Verbs), "delete")
	s.grant("keeper", clusters, claims)
	s.eventually(func() bool {
		_, _, code := s.run("kept-volumes", "demo", "--as", "viewer")
		return code == 0
	})
	_, errs, code := s.run("kept-volumes", "demo", "--discard", "demo-gone1", "--as", "viewer")
	if contains(t, errs, "forbidden"); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	s.eventually(func() bool {
		_, _, code := s.run("kept-volumes", "demo", "--discard", "demo-gone1", "--as", "keeper")
		return code == 0
	})
}
