package plugin

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// is fails unless a finding has the result and the words.
func is(t *testing.T, f finding, result string, words ...string) {
	t.Helper()
	if contains(t, f.Reason+" "+f.Next, words...); f.Result != result || f.Reason == "" || (f.Next == "") != (result == checkOK) {
		t.Errorf("got %+v, want %s", f, result)
	}
}

func TestChecksOfKubernetes(t *testing.T) {
	is(t, versionFinding("v1.32.0"), checkOK, "v1.32.0 is 1.32 or newer")
	is(t, versionFinding("v1.36.2+k3s1"), checkOK)
	is(t, versionFinding("v1.31.9-gke.1"), checkFail, "older than 1.32")
	is(t, versionFinding("devel"), checkWarn, `"devel"`)
	class := func(name, standard string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": standard}}}
	}
	is(t, storageFinding(nil), checkWarn, "no StorageClass")
	is(t, storageFinding([]storagev1.StorageClass{class("a", "false"), class("b", "")}), checkWarn, "none of a, b is the default")
	is(t, storageFinding([]storagev1.StorageClass{class("a", "true"), class("b", "true")}), checkWarn, "a and b")
	is(t, storageFinding([]storagev1.StorageClass{class("a", "true"), class("b", "false")}), checkOK, "StorageClass a is the default")
}

// The rights are those for the kinds of the manifests, and the policies are those in them.
func TestTheChecksKnowTheManifests(t *testing.T) {
	raw, err := os.ReadFile("../../manifests/install/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var found, named []string
	for text := range strings.SplitSeq(string(raw), "\n---\n") {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "" {
			continue
		}
		plural := strings.ToLower(object.Kind) + "s"
		if strings.HasSuffix(object.Kind, "Policy") {
			plural = strings.TrimSuffix(plural, "ys") + "ies"
		}
		if !slices.ContainsFunc(installing, func(r right) bool {
			return r.verb == "create" && r.resource == plural && r.namespace == object.Namespace
		}) {
			t.Errorf("no right to create %s in namespace %q", plural, object.Namespace)
		}
		also, role := map[string]string{"ClusterRole": "escalate", "Role": "escalate", "ClusterRoleBinding": "bind", "RoleBinding": "bind"}[object.Kind],
			strings.TrimSuffix(plural, "bindings")
		if also != "" && !slices.ContainsFunc(installing, func(r right) bool {
			return r.verb == also && strings.TrimSuffix(r.resource, "s") == strings.TrimSuffix(role, "s") && r.namespace == object.Namespace
		}) {
			t.Errorf("no right to %s %s in namespace %q", also, role, object.Namespace)
		}
		if object.Kind == "ValidatingAdmissionPolicy" {
			found = append(found, object.Name)
			var policy admissionv1.ValidatingAdmissionPolicy
			if err := yaml.Unmarshal([]byte(text), &policy); err != nil {
				t.Fatal(err)
			}
			if names(policy, "system:serviceaccount:druid-system:druid") {
				named = append(named, object.Name)
			}
		}
	}
	slices.Sort(found)
	slices.Sort(named)
	if !slices.Equal(named, aboutDruid) {
		t.Errorf("the policies that name the user of druid are %v", named)
	}
	if !slices.Equal(found, policies) {
		t.Errorf("the policies are %v", found)
	}
}

// A policy that was changed is reported like one that is missing.
func TestTheChecksKnowWeakPolicies(t *testing.T) {
	for name, change := range map[string]func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding){
		"it ignores failures of expressions": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.FailurePolicy = new(admissionv1.Ignore)
		},
		"it validates nothing": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations = nil
		},
		"it needs parameters": func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		},
		"its binding is for another policy": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "other"
		},
		"its binding only warns": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		},
		"its binding has parameters": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ParamRef = &admissionv1.ParamRef{Name: "a", ParameterNotFoundAction: new(admissionv1.AllowAction)}
		},
		"its binding is for some namespaces": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		},
		"its binding is for some objects": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		},
		"its binding leaves resources out": func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{ExcludeResourceRules: []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"a"}}}}
		},
	} {
		policy, binding := admissionv1.ValidatingAdmissionPolicy{}, admissionv1.ValidatingAdmissionPolicyBinding{}
		policy.Name, policy.Spec.FailurePolicy, policy.Spec.Validations = "druid-pods", new(admissionv1.Fail), []admissionv1.Validation{{Expression: "true"}}
		binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "druid-pods", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}, MatchResources: &admissionv1.MatchResources{},
		}
		if !enforced(policy, binding) {
			t.Fatal("the policy of the installation is reported as changed")
		}
		if change(&policy, &binding); enforced(policy, binding) {
			t.Errorf("%s, and that is not reported", name)
		}
	}
}

// A policy protects only from the user that it names.
func TestTheChecksKnowTheUserOfDruid(t *testing.T) {
	policy := func(expressions ...string) (p admissionv1.ValidatingAdmissionPolicy) {
		for _, expression := range expressions {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "druid", Expression: expression})
		}
		return p
	}
	const user = "system:serviceaccount:druid-system:druid"
	for expression, want := range map[string]bool{
		"request.userInfo.username == '" + user + "'":                          true,
		"request.userInfo.username != '" + user + "'":                          true,
		"request.userInfo.username == '" + user + "-2'":                        false,
		"request.userInfo.username == 'system:serviceaccount:operators:druid'": false,
		"true": false,
	} {
		if got := names(policy("request.operation == 'CREATE'", expression), user); got != want {
			t.Errorf("%s names %s: %t, want %t", expression, user, got, want)
		}
	}
	if names(policy(), user) {
		t.Error("a policy without a match condition names a user")
	}
	account := func(namespace, name string) appsv1.Deployment {
		return deployment(func(d *appsv1.Deployment) { d.Namespace, d.Spec.Template.Spec.ServiceAccountName = namespace, name })
	}
	i := &installation{deployments: []appsv1.Deployment{account("operators", ""), account("druid-system", "druid"), account("druid-system", "druid")}}
	if got, want := i.users(), []string{user, "system:serviceaccount:operators:default"}; !slices.Equal(got, want) {
		t.Errorf("the users are %v, want %v", got, want)
	}
}

// deployment is druid's, with all replicas ready.
func deployment(change func(*appsv1.Deployment)) appsv1.Deployment {
	d := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "druid-system", Name: "druid", Labels: map[string]string{"app.kubernetes.io/name": "druid"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "druid"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "druid"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "druid", Image: "registry.example.com/druid:v0.6.0"}}},
			},
		},
		Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 2},
	}
	change(&d)
	return d
}

func TestChecksOfDruid(t *testing.T) {
	one := func(change func(*appsv1.Deployment)) finding {
		return (&installation{kube: &kube{}}).deploymentFinding([]appsv1.Deployment{deployment(change)})
	}
	is(t, one(func(*appsv1.Deployment) {}), checkOK, "2 of 2 replicas of druid-system/druid are ready")
	is(t, one(func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 1 }), checkWarn, "1 of 2", "describe")
	is(t, one(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }), checkWarn, "1 are up to date")
	is(t, one(func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 0 }), checkFail, "no replica")
	is(t, one(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) }), checkFail, "--replicas 2")
	is(t, (&installation{kube: &kube{}}).deploymentFinding(nil), checkFail, "no Deployment")
	is(t, (&installation{kube: &kube{}}).deploymentFinding([]appsv1.Deployment{deployment(func(*appsv1.Deployment) {}),
		deployment(func(d *appsv1.Deployment) { d.Namespace = "other" })}), checkWarn, "more than once", "other/druid")

	lease := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("druid-1"), LeaseDurationSeconds: new(int32(15)),
		RenewTime: &metav1.MicroTime{Time: situations.Now.Add(-70 * time.Second)}}}
	is(t, leaderFinding(lease, situations.Now, "look"), checkOK, "druid-1 leads")
	lease.Spec.RenewTime.Time = situations.Now.Add(-76 * time.Second)
	is(t, leaderFinding(lease, situations.Now, "look"), checkFail, "druid-1 led last, 1m16s ago", "look")
	is(t, leaderFinding(coordinationv1.Lease{}, situations.Now, "look"), checkFail, "no replica of druid leads")

	pod := func(name, image string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{leases.LabelCluster: "demo"}},
			Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "install", Image: "x"}, {Name: "agent", Image: image}}}}
	}
	is(t, agentsFinding(nil, "i:2", "default"), checkOK, "no agent runs")
	is(t, agentsFinding([]corev1.Pod{pod("a", "i:2"), pod("b", "i:2")}, "i:2", "default"), checkOK, "2 agents in namespace default run i:2")
	is(t, agentsFinding([]corev1.Pod{pod("a", "i:2"), pod("b", "i:1")}, "i:2", "default"), checkWarn, "1 of 2 agents do not run i:2: b of demo runs i:1")
	mirrored := pod("b", "mirror.example.com/i:2")
	mirrored.Annotations = map[string]string{manifests.AnnotationAgentImage: "i:2"}
	is(t, agentsFinding([]corev1.Pod{mirrored}, "i:2", "default"), checkOK, "1 agent in")
	is(t, agentsFinding([]corev1.Pod{mirrored}, "i:3", "default"), checkWarn, "b of demo runs i:2", "unless an annotation keeps druid off")
	withFlag := deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"--agent-image=i:3"} })
	if got := agentImage(withFlag); got != "i:3" {
		t.Errorf("the agents get %s", got)
	}
}

func TestChecksOfDefinitionsAndWebhooks(t *testing.T) {
	definition := func(text string) finding {
		var o unstructured.Unstructured
		if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"d"},`+text+`}`),
			&o.Object); err != nil {
			t.Fatal(err)
		}
		return definitionFinding(o)
	}
	const versions = `"spec":{"versions":[{"name":"v1alpha1","served":true},{"name":"v1","served":false}]}`
	is(t, definition(versions+`,"status":{"storedVersions":["v1alpha1","v1"],"conditions":[{"type":"Established","status":"True"}]}`), checkOK)
	is(t, definition(versions+`,"status":{"storedVersions":["v0"]}`), checkFail, "stored objects of version v0")
	is(t, definition(`"spec":{"versions":[{"name":"v1","served":true},{"name":"v1alpha1","served":false}]}`), checkFail, "does not serve v1alpha1")
	is(t, definition(versions+`,"status":{"conditions":[{"type":"NamesAccepted","status":"False","message":"taken"}]}`), checkFail, "NamesAccepted=False: taken")
	is(t, definition(versions+`,"status":{"conditions":[{"type":"Terminating","status":"True","message":"going"}]}`), checkFail, "Terminating=True: going")

	rule := func(group, resource string) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: []string{group}, Resources: []string{resource}}}}
	}
	for want, rules := range map[string][]admissionv1.RuleWithOperations{
		"true: druid's": rule("etcd.druid.dev", "etcdclusters/status"), "true: all": rule("*", "*"),
		"true: Leases": rule("coordination.k8s.io", "leases"), "true: snapshots": rule("*", "etcdsnapshots"),
		"true: every status": rule("*", "*/status"), "true: each status of druid's": rule("etcd.druid.dev", "*/status"),
		"false: status of no Lease": rule("coordination.k8s.io", "*/status"),
		"false: Pods":               rule("", "pods"), "false: others": rule("coordination.k8s.io", "leasecandidates"), "false: none": nil,
	} {
		if got := stopsWrites(nil, rules); got != strings.HasPrefix(want, "true") {
			t.Errorf("%s: got %v", want, got)
		}
	}
	if stopsWrites(new(admissionv1.Ignore), rule("*", "*")) {
		t.Error("a webhook that may fail stops nothing")
	}
}

// findingsOf reads the output for programs.
func (s *stage) findingsOf(args ...string) (all map[string]finding, code int) {
	s.Helper()
	out, errs, code := s.run(append(args, "-o", "json")...)
	var list []finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		s.Fatalf("%v in %s%s", err, out, errs)
	}
	all = map[string]finding{}
	for _, f := range list {
		all[f.Check] = f
	}
	return all, code
}

func TestCheckOfARealAPIServer(t *testing.T) {
	s := newStage(t, env.OwnAPIServer(t))
	o := situation(t, "serving")
	s.put(onNode(o, ""))
	all, code := s.findingsOf("check")
	is(t, all["Kubernetes version"], checkOK)
	is(t, all["Kubernetes APIs"], checkOK)
	is(t, all["StorageClass"], checkWarn, "no StorageClass")
	is(t, all["Other operators"], checkOK)
	is(t, all["CustomResourceDefinitions"], checkOK, "etcdsnapshots.etcd.druid.dev serve v1alpha1")
	is(t, all["Policies"], checkWarn, "druid-clusters")
	is(t, all["Webhooks"], checkOK)
	is(t, all["Your permissions"], checkOK, "all commands")
	is(t, all["Leader of druid"], checkWarn)
	if is(t, all["Deployment of druid"], checkFail, "no Deployment"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	s.installDruid()
	all, code = s.findingsOf("check", "demo")
	is(t, all["Deployment of druid"], checkOK)
	is(t, all["Leader of druid"], checkOK, "druid-1 leads")
	is(t, all["Images of the agents"], checkOK, "3 agents in namespace "+s.namespace+" run registry.example.com/druid:v0.6.0")
	if is(t, all["EtcdCluster demo"], checkOK, "Serving"); code != 0 {
		t.Errorf("exit code %d: %v", code, all)
	}
	out, _, _ := s.run("check", "demo")
	golden.File(t, "testdata/check.txt", versionless(strings.ReplaceAll(out, s.namespace, "default"), all["Kubernetes version"].Reason))
	all, code = s.findingsOf("check", "other")
	if is(t, all["EtcdCluster other"], checkFail, "does not exist in namespace"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	s.asViewer()
	s.otherOperators()

	// Without the CustomResourceDefinitions, it is about the time before an installation.
	for _, name := range []string{"etcdclusters.etcd.druid.dev", "etcdsnapshots.etcd.druid.dev"} {
		if err := s.dynamic.Resource(definitions).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually(func() bool {
		all, code = s.findingsOf("check")
		_, before := all["Permission to install"]
		return before
	})
	if is(t, all["Permission to install"], checkOK, "everything"); code != 0 || len(all) != 5 {
		t.Errorf("exit code %d: %v", code, all)
	}
	all, code = s.findingsOf("check", "--as", "viewer")
	if is(t, all["Permission to install"], checkFail, "create customresourcedefinitions", "cluster-admin"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, errs, code := s.run("check", "demo"); code != 1 || !strings.Contains(errs, "are not installed") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// otherOperators adds kinds that are called like those of druid.
func (s *stage) otherOperators() {
	s.Helper()
	for _, other := range []struct{ group, plural, kind, says string }{
		{"operator.example.com", "etcdclusters", "EtcdCluster", "operator.example.com also has etcdclusters"},
		{gardenerGroup, "etcds", "Etcd", "Gardener's etcd-druid is here"},
	} {
		_, err := s.dynamic.Resource(definitions).Create(s.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": other.plural + "." + other.group},
			"spec": map[string]any{
				"group": other.group, "scope": "Namespaced",
				"names": map[string]any{"kind": other.kind, "plural": other.plural, "singular": strings.ToLower(other.kind), "listKind": other.kind + "List"},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
				}},
			},
		}}, metav1.CreateOptions{})
		if err != nil {
			s.Fatal(err)
		}
		var all map[string]finding
		var code int
		s.eventually(func() bool {
			all, code = s.findingsOf("check")
			return strings.Contains(all["Other operators"].Reason, other.says)
		})
		if is(s.T, all["Other operators"], checkWarn, other.says); code != 0 {
			s.Errorf("exit code %d: %v", code, all)
		}
	}
}

// versionless has the sentence about the version as it is for one of them.
func versionless(text, sentence string) string {
	return strings.ReplaceAll(text, sentence, "v1.34.2 is 1.32 or newer")
}

// asViewer checks what a user sees who may read little.
func (s *stage) asViewer() {
	s.Helper()
	s.grant("viewer", viewing...)
	var all map[string]finding
	var code int
	s.eventually(func() bool {
		all, code = s.findingsOf("check", "demo", "--as", "viewer")
		return !strings.Contains(all["Your permissions"].Reason, "get etcdclusters")
	})
	is(s.T, all["Your permissions"], checkWarn, "list leases (for status)", "create pods/exec (for etcdctl and backups)", "patch etcdclusters")
	is(s.T, all["Webhooks"], checkWarn, "you may not read webhooks")
	if is(s.T, all["StorageClass"], checkWarn, "you may not read StorageClasses", "administrator"); code != 0 {
		s.Errorf("exit code %d: %v", code, all)
	}
}

// installDruid creates what the checks look at.
func (s *stage) installDruid() {
	s.Helper()
	d := deployment(func(*appsv1.Deployment) {})
	if _, err := s.typed.CoreV1().Namespaces().Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.Namespace}},
		metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	created, err := s.typed.AppsV1().Deployments(d.Namespace).Create(s.Context(), &d, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	created.Status = d.Status
	created.Status.ObservedGeneration = created.Generation
	if _, err := s.typed.AppsV1().Deployments(d.Namespace).UpdateStatus(s.Context(), created, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "druid"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("druid-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: situations.Now.Add(-2 * time.Second)},
	}}
	if _, err := s.typed.CoordinationV1().Leases(d.Namespace).Create(s.Context(), lease, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard",
		Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "example.com/disks"}
	if _, err := s.typed.StorageV1().StorageClasses().Create(s.Context(), class, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}
