package manifests

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// otherOwner exists in each namespace, so the garbage collector would keep an object with it.
var otherOwner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "kube-root-ca.crt", UID: "a-config-map"}

// addsOwner is a patch that adds an owner of a user.
const addsOwner = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"more","uid":"more"}]}}`

// ownObjects are objects that druid makes for an EtcdCluster, as the token of druid can create them.
func (in *installed) ownObjects(t *testing.T) map[string]client.Object {
	t.Helper()
	all := map[string]client.Object{"Lease": LeaderLease(in.cluster)}
	for _, a := range in.applied(t) {
		object := map[string]client.Object{
			"ConfigMap": &corev1.ConfigMap{}, "Service": &corev1.Service{}, "ServiceAccount": &corev1.ServiceAccount{},
			"NetworkPolicy": &networkingv1.NetworkPolicy{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		}[a.Kind.Kind]
		if object == nil || a.Kind.Kind == "Service" && a.Name != ClientServiceName(in.cluster.Name) {
			continue
		}
		fields, err := tree(a.Configuration)
		if err != nil {
			t.Fatal(err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, object); err != nil {
			t.Fatal(err)
		}
		all[a.Kind.Kind] = object
	}
	return all
}

// With a stolen token of druid, an object gets no owner but its EtcdCluster, and only a name that druid uses. The garbage collector deletes
// it if the EtcdCluster does not exist.
func TestATokenOfDruidForgesNoOwners(t *testing.T) {
	in := install(t, env.APIServer(t))
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: in.cluster.Namespace}}
	inForce(t, "druid-objects", func() error { return in.druid.Create(t.Context(), foreign.DeepCopy(), client.DryRunAll) })
	create := func(object client.Object, change func(client.Object)) func() error {
		made := object.DeepCopyObject().(client.Object)
		change(made)
		return func() error {
			return in.druid.Create(t.Context(), made.DeepCopyObject().(client.Object), client.DryRunAll)
		}
	}
	for kind, object := range in.ownObjects(t) {
		answered(t, "druid-objects", "create "+kind, false, create(object, func(client.Object) {}))
		for what, change := range map[string]func(client.Object){
			"a second owner":             func(o client.Object) { o.SetOwnerReferences(append(o.GetOwnerReferences(), otherOwner)) },
			"a finalizer":                func(o client.Object) { o.SetFinalizers([]string{"example.com/hold"}) },
			"another name":               func(o client.Object) { o.SetName("demo-of-others") },
			"the name of others":         func(o client.Object) { o.SetName("bank" + o.GetName()[len("demo"):]) },
			"a name that goes on":        func(o client.Object) { o.SetName(o.GetName() + "-more") },
			"a name that begins earlier": func(o client.Object) { o.SetName("x-" + o.GetName()) },
		} {
			answered(t, "druid-objects", "create "+kind+" with "+what, true, create(object, change))
		}
		object.SetOwnerReferences(append(object.GetOwnerReferences(), otherOwner))
		if err := in.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		note := `{"metadata":{"annotations":{"example.com/note":"x"}}}`
		answered(t, "druid-objects", "change "+kind+" to which a user added an owner", false, in.patch(t, object, types.MergePatchType, note))
		answered(t, "druid-objects", "add an owner to "+kind, true, in.patch(t, object, types.StrategicMergePatchType, addsOwner))
	}
	in.ownsClaims(t)
}

// ownsClaims checks the owners of claims: data can outlive its EtcdCluster, so no owner controls a claim.
func (in *installed) ownsClaims(t *testing.T) {
	t.Helper()
	claim := PersistentVolumeClaim(in.cluster, member)
	if len(claim.OwnerReferences) != 1 {
		t.Fatalf("the claim of the test has the owners %v", claim.OwnerReferences)
	}
	for what, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"no owner":       func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil },
		"an EtcdCluster": func(*corev1.PersistentVolumeClaim) {},
		"another owner":  func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{otherOwner} },
		"an unknown version of its owner": func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences[0].APIVersion = "etcd.druid.dev/v9"
		},
		"a name of others":        func(c *corev1.PersistentVolumeClaim) { c.Name = "database-0" },
		"a name of another kind":  func(c *corev1.PersistentVolumeClaim) { c.Name = "demo-database" },
		"the name of another":     func(c *corev1.PersistentVolumeClaim) { c.Labels[leases.LabelCluster] = "bank" },
		"no label of its cluster": func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, leases.LabelCluster) },
	} {
		made := claim.DeepCopy()
		change(made)
		answered(t, "druid-objects", "create a claim with "+what, what != "no owner" && what != "an EtcdCluster",
			func() error { return in.druid.Create(t.Context(), made.DeepCopy(), client.DryRunAll) })
	}
	claim.OwnerReferences = []metav1.OwnerReference{otherOwner}
	if err := in.admin.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	owner := ClaimOwner(in.cluster)
	taken := claim.DeepCopy()
	taken.OwnerReferences = append(taken.OwnerReferences, owner)
	answered(t, "druid-objects", "take a claim with another owner", false,
		func() error {
			return in.druid.Patch(t.Context(), taken.DeepCopy(), client.MergeFrom(claim), client.DryRunAll)
		})
	answered(t, "druid-objects", "add another owner to a claim", true, in.patch(t, claim, types.StrategicMergePatchType, addsOwner))
}

// A stolen token of druid sends no traffic of others to a Service or to Pods of its choice.
func TestATokenOfDruidTakesNoTraffic(t *testing.T) {
	in := install(t, env.APIServer(t))
	own := in.ownObjects(t)
	service, network := own["Service"].(*corev1.Service), own["NetworkPolicy"].(*networkingv1.NetworkPolicy)
	budget := own["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget)
	foreign := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: in.cluster.Namespace}}
	inForce(t, "druid-objects", func() error { return in.druid.Create(t.Context(), foreign.DeepCopy(), client.DryRunAll) })
	create := func(object client.Object) func() error {
		return func() error {
			return in.druid.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
		}
	}
	others := map[string]string{"app": "bank"}
	network.Spec.PodSelector = metav1.LabelSelector{MatchLabels: others}
	answered(t, "druid-objects", "create a NetworkPolicy of other Pods", true, create(network))
	network.Spec.PodSelector = metav1.LabelSelector{}
	answered(t, "druid-objects", "create a NetworkPolicy of all Pods", true, create(network))
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: others}
	answered(t, "druid-objects", "create a PodDisruptionBudget of other Pods", true, create(budget))
	kinds := map[string]func(*corev1.Service){
		"ClusterIP":    func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil },
		"NodePort":     func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeNodePort, nil },
		"LoadBalancer": func(*corev1.Service) {},
	}
	for kind, change := range kinds {
		made := service.DeepCopy()
		change(made)
		answered(t, "druid-objects", "create a Service of type "+kind, false, create(made))
	}
	attempts := map[string]func(*corev1.Service){
		"an external name": func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.ExternalName = corev1.ServiceTypeExternalName, nil, "attacker.example.com"
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies, s.Spec.ClusterIP, s.Spec.ClusterIPs = nil, nil, "", nil
		},
		"an external address":    func(s *corev1.Service) { s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, "192.0.2.66") },
		"sources":                func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"0.0.0.0/0"} },
		"Pods of others":         func(s *corev1.Service) { s.Spec.Selector = others },
		"Pods of another uid":    func(s *corev1.Service) { s.Spec.Selector = map[string]string{LabelClusterUID: "x"} },
		"Pods of no EtcdCluster": func(s *corev1.Service) { s.Spec.Selector = nil },
	}
	for what, change := range attempts {
		made := service.DeepCopy()
		change(made)
		answered(t, "druid-objects", "create a Service with "+what, true, create(made))
	}
	// What a user added stays, and druid changes the rest.
	service.Spec.ExternalIPs, service.Spec.LoadBalancerSourceRanges = []string{"192.0.2.1"}, []string{"192.0.2.0/24"}
	service.Spec.Selector = map[string]string{"app": "mine"}
	if err := in.admin.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	delete(attempts, "an external name") // Kubernetes refuses it together with sources
	for what, change := range attempts {
		made := service.DeepCopy()
		change(made)
		answered(t, "druid-objects", "change a Service so that it has "+what, true,
			func() error {
				return in.druid.Patch(t.Context(), made.DeepCopy(), client.MergeFrom(service), client.DryRunAll)
			})
	}
	answered(t, "druid-objects", "remove the sources that a user permits", true,
		in.patch(t, service, types.MergePatchType, `{"spec":{"loadBalancerSourceRanges":null}}`))
	for what, patch := range map[string]string{
		"nothing":                       `{"metadata":{"annotations":{"example.com/note":"x"}}}`,
		"the external addresses":        `{"spec":{"externalIPs":null}}`,
		"the selector to that of druid": `{"spec":{"selector":{"app":null,"` + leases.LabelCluster + `":"demo"}}}`,
	} {
		answered(t, "druid-objects", "change of a Service "+what, false, in.patch(t, service, types.MergePatchType, patch))
	}
}

// A stolen token of druid creates no EtcdSnapshot that could own Pods where there is no EtcdCluster.
func TestATokenOfDruidMakesNoOwner(t *testing.T) {
	in := install(t, env.APIServer(t))
	save := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{
		Name: "save", Namespace: in.cluster.Namespace, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.cluster, kind)},
	}}
	save.Spec.ClusterRef.Name, save.Spec.Type = in.cluster.Name, v1alpha1.SnapshotFull
	create := func(change func(*v1alpha1.EtcdSnapshot)) func() error {
		made := save.DeepCopy()
		change(made)
		return func() error { return in.druid.Create(t.Context(), made.DeepCopy(), client.DryRunAll) }
	}
	inForce(t, "druid-specs", create(func(s *v1alpha1.EtcdSnapshot) { s.OwnerReferences = nil }))
	answered(t, "druid-specs", "create the EtcdSnapshot before a change of version", false, create(func(*v1alpha1.EtcdSnapshot) {}))
	for what, change := range map[string]func(*v1alpha1.EtcdSnapshot){
		"two owners":                  func(s *v1alpha1.EtcdSnapshot) { s.OwnerReferences = append(s.OwnerReferences, otherOwner) },
		"another owner":               func(s *v1alpha1.EtcdSnapshot) { s.OwnerReferences = []metav1.OwnerReference{otherOwner} },
		"an owner of another kind":    func(s *v1alpha1.EtcdSnapshot) { s.OwnerReferences[0].Kind = "EtcdSnapshot" },
		"an owner of an unknown type": func(s *v1alpha1.EtcdSnapshot) { s.OwnerReferences[0].APIVersion = "etcd.druid.dev/v9" },
		"an owner of another cluster": func(s *v1alpha1.EtcdSnapshot) { s.Spec.ClusterRef.Name = "bank" },
		"a finalizer":                 func(s *v1alpha1.EtcdSnapshot) { s.Finalizers = []string{v1alpha1.SnapshotFinalizer} },
		"a backup that goes with it":  func(s *v1alpha1.EtcdSnapshot) { s.Spec.DeletionPolicy = v1alpha1.SnapshotDelete },
	} {
		answered(t, "druid-specs", "create an EtcdSnapshot with "+what, true, create(change))
	}
}
