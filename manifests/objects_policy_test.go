package manifests

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

// foreignObjects are objects of the kinds that druid writes, which others made.
func foreignObjects(meta func() metav1.ObjectMeta) map[string]client.Object {
	return map[string]client.Object{
		"ConfigMap":      &corev1.ConfigMap{ObjectMeta: meta()},
		"Service":        &corev1.Service{ObjectMeta: meta(), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		"ServiceAccount": &corev1.ServiceAccount{ObjectMeta: meta()},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaim{ObjectMeta: meta(), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
		"Lease":               &coordinationv1.Lease{ObjectMeta: meta()},
		"Role":                &rbacv1.Role{ObjectMeta: meta()},
		"RoleBinding":         &rbacv1.RoleBinding{ObjectMeta: meta(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "druid"}},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudget{ObjectMeta: meta()},
		"NetworkPolicy":       &networkingv1.NetworkPolicy{ObjectMeta: meta()},
	}
}

// deletable are the kinds of objects that the ClusterRole lets druid delete.
var deletable = map[string]bool{"Service": true, "PersistentVolumeClaim": true, "Lease": true, "PodDisruptionBudget": true, "NetworkPolicy": true}

// A stolen token of druid changes no objects of others, and takes none over.
func TestATokenOfDruidChangesNoForeignObjects(t *testing.T) {
	in := install(t, env.APIServer(t))
	namespace := env.Namespace(t, in.config)
	foreign := func() metav1.ObjectMeta { return metav1.ObjectMeta{Name: "foreign", Namespace: namespace} }
	inForce(t, "druid-objects", func() error {
		return in.druid.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: foreign()}, client.DryRunAll)
	})
	owner := fmt.Sprintf(`[{"apiVersion":%q,"kind":"EtcdCluster","name":"demo","uid":%q,"controller":true}]`, v1alpha1.GroupVersion, in.cluster.UID)
	for kind, object := range foreignObjects(foreign) {
		marked := object.DeepCopyObject().(client.Object)
		if kind != "PersistentVolumeClaim" { // one with the label of druid needs no owner
			marked.SetLabels(map[string]string{labelManagedBy: "druid"})
		}
		for _, made := range []client.Object{object, marked} {
			if err := in.druid.Create(t.Context(), made.DeepCopyObject().(client.Object), client.DryRunAll); !refusedBy("druid-objects", err) {
				t.Errorf("create %s with labels %v: %v, want a refusal by the policy", kind, made.GetLabels(), err)
			}
		}
		if err := in.admin.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s: %v", kind, err)
		}
		later := map[string]func() error{
			"annotate": in.patch(t, object, types.MergePatchType, `{"metadata":{"annotations":{"example.com/note":"x"}}}`),
			"label":    in.patch(t, object, types.MergePatchType, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"druid","etcd.druid.dev/cluster-uid":"x"}}}`),
			"own":      in.patch(t, object, types.MergePatchType, `{"metadata":{"ownerReferences":`+owner+`}}`),
		}
		if deletable[kind] {
			later["delete"] = func() error {
				return in.druid.Delete(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
			}
		}
		for name, try := range later {
			if err := try(); !refusedBy("druid-objects", err) {
				t.Errorf("%s %s: %v, want a refusal by the policy", name, kind, err)
			}
		}
	}
	in.knowsItsOwners(t, foreign)
	in.changesItsOwn(t, namespace)
}

// knowsItsOwners checks that no other owner than an EtcdCluster that controls an object makes it one of druid.
func (in *installed) knowsItsOwners(t *testing.T, meta func() metav1.ObjectMeta) {
	t.Helper()
	by := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdCluster", Name: "demo", UID: in.cluster.UID, Controller: new(true)}
	unmarked := &corev1.ConfigMap{ObjectMeta: meta()}
	unmarked.Name, unmarked.OwnerReferences = AgentName("demo"), []metav1.OwnerReference{by}
	if err := in.druid.Create(t.Context(), unmarked, client.DryRunAll); !refusedBy("druid-objects", err) {
		t.Errorf("create an object with an owner and without the label: %v, want a refusal by the policy", err)
	}
	for name, change := range map[string]func(*metav1.OwnerReference){
		"another-kind": func(o *metav1.OwnerReference) { o.Kind = "ConfigMap" },
		"another-api":  func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" },
		// The garbage collector does not know the version, so it would keep the object.
		"another-version": func(o *metav1.OwnerReference) { o.APIVersion = "etcd.druid.dev/v9" },
		"no-control":      func(o *metav1.OwnerReference) { o.Controller = nil },
	} {
		owner := by
		change(&owner)
		object := &corev1.ConfigMap{ObjectMeta: meta()}
		object.Name, object.OwnerReferences = name, []metav1.OwnerReference{owner}
		marked := object.DeepCopy()
		marked.Labels = map[string]string{labelManagedBy: "druid"}
		if err := in.druid.Create(t.Context(), marked, client.DryRunAll); !refusedBy("druid-objects", err) {
			t.Errorf("create an object with the owner %+v: %v, want a refusal by the policy", owner, err)
		}
		if err := in.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if err := in.patch(t, object, types.MergePatchType, `{"metadata":{"annotations":{"example.com/note":"x"}}}`)(); !refusedBy("druid-objects", err) {
			t.Errorf("annotate an object with the owner %+v: %v, want a refusal by the policy", owner, err)
		}
	}
}

// changesItsOwn checks that the policy allows what druid does with objects that have no owner, or no label.
func (in *installed) changesItsOwn(t *testing.T, namespace string) {
	t.Helper()
	election := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "druid", Namespace: namespace}}
	if err := in.druid.Create(t.Context(), election); err != nil {
		t.Errorf("create the Lease of the election: %v", err)
	}
	election.Spec.HolderIdentity = new("druid-0")
	if err := in.druid.Update(t.Context(), election); err != nil {
		t.Errorf("renew the Lease of the election: %v", err)
	}
	cluster := plain()
	cluster.Namespace = namespace
	claim, lease := PersistentVolumeClaim(cluster, member), MemberLease(cluster, member)
	for _, object := range []client.Object{claim, lease} {
		delete(object.GetLabels(), labelManagedBy)
		if err := in.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if err := in.patch(t, object, types.MergePatchType, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"druid"}}}`)(); err != nil {
			t.Errorf("restore the label of %T: %v", object, err)
		}
	}
	if err := in.patch(t, lease, types.MergePatchType, `{"metadata":{"ownerReferences":null,"labels":null}}`)(); !refusedBy("druid-objects", err) {
		t.Errorf("give a Lease away: %v, want a refusal by the policy", err)
	}
	retain := `{"metadata":{"ownerReferences":[],"labels":{"etcd.druid.dev/cluster-uid":null,"etcd.druid.dev/component":null,"etcd.druid.dev/member":null}}}`
	labelled := PersistentVolumeClaim(cluster, "demo-kept1")
	if err := in.druid.Create(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	if err := in.patch(t, labelled, types.MergePatchType, retain)(); err != nil {
		t.Errorf("retain a claim: %v", err)
	}
}

// patch returns a patch of the object by druid that is not stored.
func (in *installed) patch(t testing.TB, object client.Object, kind types.PatchType, patch string) func() error {
	t.Helper()
	return func() error {
		return in.druid.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(patch)), client.DryRunAll)
	}
}

// A stolen token of druid changes nothing that a user decides about.
func TestATokenOfDruidChangesNoSpec(t *testing.T) {
	in := install(t, env.APIServer(t))
	cluster := plain()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: "other", Namespace: in.cluster.Namespace, Finalizers: []string{"example.com/hold"}}
	cluster.Spec.AdditionalMetadata = nil
	snapshot := ownStore(cluster)
	snapshot.ObjectMeta = metav1.ObjectMeta{Name: "own", Namespace: in.cluster.Namespace, Finalizers: []string{"example.com/hold"}}
	kept := snapshot.DeepCopy()
	kept.Name, snapshot.Spec.DeletionPolicy = "kept", v1alpha1.SnapshotDelete
	if err := in.admin.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	hold := `{"metadata":{"finalizers":["example.com/hold","` + v1alpha1.SnapshotFinalizer + `"]}}`
	answered(t, "druid-specs", "hold an EtcdSnapshot whose backup stays", true, in.patch(t, kept, types.MergePatchType, hold))
	for _, object := range []client.Object{cluster, snapshot} {
		if err := in.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		inForce(t, "druid-specs", in.patch(t, object, types.MergePatchType, `{"metadata":{"labels":{"example.com/note":"x"}}}`))
		for name, patch := range map[string]string{
			"approve a recovery":         `{"metadata":{"annotations":{"etcd.druid.dev/recover":"x"}}}`,
			"add an owner":               `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a"}]}}`,
			"remove another's finalizer": `{"metadata":{"finalizers":[]}}`,
			"add another's finalizer":    `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`,
			"change the spec": map[bool]string{true: `{"spec":{"replicas":1}}`,
				false: `{"spec":{"deletionPolicy":"Retain"}}`}[object == client.Object(cluster)],
		} {
			if err := in.patch(t, object, types.MergePatchType, patch)(); !refusedBy("druid-specs", err) {
				t.Errorf("%s of %T: %v, want a refusal by the policy", name, object, err)
			}
		}
		for finalizer, own := range map[string]bool{
			v1alpha1.JoinFinalizer: object == client.Object(cluster), v1alpha1.SnapshotFinalizer: object == client.Object(snapshot), "etcd.druid.dev/other": false,
		} {
			hold, release := `{"metadata":{"finalizers":["example.com/hold","`+finalizer+`"]}}`, `{"metadata":{"finalizers":["example.com/hold"]}}`
			answered(t, "druid-specs", fmt.Sprintf("add %s to %T", finalizer, object), !own, in.patch(t, object, types.MergePatchType, hold))
			if err := in.admin.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(hold))); err != nil {
				t.Fatal(err)
			}
			answered(t, "druid-specs", fmt.Sprintf("remove %s from %T", finalizer, object), false, in.patch(t, object, types.MergePatchType, release))
			if err := in.admin.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(release))); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.druid.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`))); err != nil {
			t.Errorf("write the status of %T: %v", object, err)
		}
	}
}
