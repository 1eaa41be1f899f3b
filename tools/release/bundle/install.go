package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// document is an object of the installation, and its text in install.yaml.
type document struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	text []byte
}

// binding is a RoleBinding or a ClusterRoleBinding. Both have the same fields.
type binding = rbacv1.ClusterRoleBinding

// installation is what install.yaml has, sorted by its place in the bundle.
type installation struct {
	namespace  corev1.Namespace
	account    corev1.ServiceAccount
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	crds       []crd
	roles      map[string]role
	bindings   []binding
	// besides are the objects that a bundle cannot contain.
	besides [][]byte
}

// role is a Role or a ClusterRole: its rules, and its kind.
type role struct {
	kind  string
	rules []rbacv1.PolicyRule
}

type crd struct {
	definition apiextensionsv1.CustomResourceDefinition
	text       []byte
}

// parse sorts the objects of install.yaml. An object of another kind fails, because nothing would install it.
func parse(install []byte) (*installation, error) {
	all := &installation{roles: map[string]role{}}
	for text := range bytes.SplitSeq(bytes.TrimPrefix(install, []byte("---\n")), []byte("\n---\n")) {
		d := document{text: append(bytes.TrimSpace(text), '\n')}
		if err := yaml.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("parse a document of the installation: %w\n%s", err, text)
		}
		if d.Kind == "" {
			continue // the comment at the top
		}
		if err := all.sort(d); err != nil {
			return nil, fmt.Errorf("%s %s of the installation: %w", d.Kind, d.Metadata.Name, err)
		}
	}
	return all, all.complete()
}

// sort puts one object into its place.
func (i *installation) sort(d document) error {
	switch d.Kind {
	case "Namespace":
		return yaml.UnmarshalStrict(d.text, &i.namespace)
	case "ServiceAccount":
		return yaml.UnmarshalStrict(d.text, &i.account)
	case "Deployment":
		return yaml.UnmarshalStrict(d.text, &i.deployment)
	case "PodDisruptionBudget":
		return yaml.UnmarshalStrict(d.text, &i.budget)
	case "CustomResourceDefinition":
		c := crd{text: d.text}
		if err := yaml.UnmarshalStrict(d.text, &c.definition); err != nil {
			return err
		}
		i.crds = append(i.crds, c)
	case "ClusterRole", "Role":
		var r rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(d.text, &r); err != nil {
			return err
		}
		if _, twice := i.roles[r.Name]; twice {
			return errors.New("there are two roles of this name")
		}
		i.roles[r.Name] = role{d.Kind, r.Rules}
	case "ClusterRoleBinding", "RoleBinding":
		var b binding
		if err := yaml.UnmarshalStrict(d.text, &b); err != nil {
			return err
		}
		i.bindings = append(i.bindings, b)
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		i.besides = append(i.besides, d.text)
	default:
		return errors.New("the bundle has no place for this kind: add it to tools/release/bundle, and to the page about OLM if users must apply it")
	}
	return nil
}

// complete returns an error if the ClusterServiceVersion could not express the installation: it binds each role to the ServiceAccount
// of the Deployment.
func (i *installation) complete() error {
	var missing []string
	for kind, name := range map[string]string{
		"Namespace": i.namespace.Name, "ServiceAccount": i.account.Name, "Deployment": i.deployment.Name, "PodDisruptionBudget": i.budget.Name,
	} {
		if name == "" {
			missing = append(missing, kind)
		}
	}
	if len(i.crds) == 0 {
		missing = append(missing, "CustomResourceDefinition")
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("the installation has no %s", strings.Join(missing, ", "))
	}
	if used := i.deployment.Spec.Template.Spec.ServiceAccountName; used != i.account.Name {
		return fmt.Errorf("the Deployment uses the ServiceAccount %q, and the installation creates %q", used, i.account.Name)
	}
	bound := map[string]bool{}
	for _, b := range i.bindings {
		if len(b.Subjects) != 1 || b.Subjects[0].Kind != "ServiceAccount" || b.Subjects[0].Name != i.account.Name {
			return fmt.Errorf("the binding %s is not for the ServiceAccount %s alone", b.Name, i.account.Name)
		}
		if found, ok := i.roles[b.RoleRef.Name]; !ok || found.kind != b.RoleRef.Kind || bound[b.RoleRef.Name] {
			return fmt.Errorf("the binding %s is not the only one of a role of the installation", b.Name)
		}
		bound[b.RoleRef.Name] = true
	}
	for name := range i.roles {
		if !bound[name] {
			return fmt.Errorf("the role %s is not bound", name)
		}
	}
	return nil
}
