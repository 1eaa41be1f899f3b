package bundle

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	home  = "https://github.com/etcd-druid/druid"
	pages = home + "/blob/main/docs/"
)

// clusterRole is the role whose objects have no namespace. OLM grants it for the Kubernetes cluster, and the other roles in the
// namespaces of the OperatorGroup and in that of druid.
const clusterRole = "druid-cluster"

// targets is the annotation in which OLM lists the namespaces of the OperatorGroup. It is empty if these are all.
const targets = "metadata.annotations['olm.targetNamespaces']"

const description = `druid runs etcd clusters on Kubernetes. It creates, scales, upgrades and backs up etcd, and replaces members that are lost.

## Before you install it

A bundle cannot contain the admission policies of druid. They restrict which Secrets druid and its agents may change. So an administrator applies
` + "`admission.yaml`" + ` of the same release first. [Install druid with OLM](` + pages + `how-to/install/olm.md) has the steps.

druid is alpha software.`

// serviceVersion renders the ClusterServiceVersion: how OLM installs druid.
func (s Source) serviceVersion(all *installation) ([]byte, error) {
	v, err := semver.Parse(s.Version)
	if err != nil {
		return nil, err
	}
	notes, err := s.notes(all)
	if err != nil {
		return nil, err
	}
	owned, err := describe(all.crds)
	if err != nil {
		return nil, err
	}
	deployment, err := watching(all.deployment)
	if err != nil {
		return nil, err
	}
	arches := map[string]string{"operatorframework.io/os.linux": "supported"}
	for _, a := range s.Architectures {
		arches["operatorframework.io/arch."+a] = "supported"
	}
	strategy := v1alpha1.StrategyDetailsDeployment{DeploymentSpecs: []v1alpha1.StrategyDeploymentSpec{deployment}}
	strategy.Permissions, strategy.ClusterPermissions = all.permissions()
	return render(&v1alpha1.ClusterServiceVersion{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.ClusterServiceVersionAPIVersion, Kind: v1alpha1.ClusterServiceVersionKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: packageName + ".v" + s.Version, Namespace: "placeholder", Labels: arches, Annotations: notes,
		},
		Spec: v1alpha1.ClusterServiceVersionSpec{
			DisplayName: "druid", Description: description, Keywords: []string{"etcd", "operator", "backup"},
			Provider: v1alpha1.AppLink{Name: "The druid authors", URL: home},
			Links:    []v1alpha1.AppLink{{Name: "Documentation", URL: pages + "README.md"}, {Name: "Source code", URL: home}},
			Icon:     []v1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(s.Icon), MediaType: "image/svg+xml"}},
			Maturity: "alpha", Version: version.OperatorVersion{Version: v}, MinKubeVersion: s.Kubernetes,
			InstallModes: []v1alpha1.InstallMode{
				{Type: v1alpha1.InstallModeTypeOwnNamespace, Supported: true},
				{Type: v1alpha1.InstallModeTypeSingleNamespace, Supported: true},
				{Type: v1alpha1.InstallModeTypeMultiNamespace, Supported: true},
				{Type: v1alpha1.InstallModeTypeAllNamespaces, Supported: true},
			},
			InstallStrategy:           v1alpha1.NamedInstallStrategy{StrategyName: v1alpha1.InstallStrategyNameDeployment, StrategySpec: strategy},
			CustomResourceDefinitions: v1alpha1.CustomResourceDefinitions{Owned: owned},
		},
	})
}

// notes are the annotations, which catalogs show.
func (s Source) notes(all *installation) (map[string]string, error) {
	var samples []any
	for _, text := range s.Samples {
		var sample map[string]any
		if err := yaml.Unmarshal(text, &sample); err != nil {
			return nil, fmt.Errorf("parse a sample: %w", err)
		}
		samples = append(samples, sample)
	}
	examples, err := json.MarshalIndent(samples, "", "  ")
	if err != nil {
		return nil, err
	}
	namespace, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": all.namespace.Name, "labels": all.namespace.Labels},
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"alm-examples":   string(examples),
		"capabilities":   "Deep Insights",
		"categories":     "Database",
		"containerImage": all.deployment.Spec.Template.Spec.Containers[0].Image,
		"createdAt":      s.At.UTC().Format(time.RFC3339),
		"description":    "Runs etcd clusters on Kubernetes, with backups to an object store",
		"repository":     home,
		"operatorframework.io/suggested-namespace-template": string(namespace),
	}, nil
}

// describe lists the CustomResourceDefinitions with the descriptions of their schemas.
func describe(crds []crd) (owned []v1alpha1.CRDDescription, err error) {
	for _, c := range crds {
		spec := c.definition.Spec
		for _, v := range spec.Versions {
			if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil || v.Schema.OpenAPIV3Schema.Description == "" {
				return nil, fmt.Errorf("%s %s has no description", c.definition.Name, v.Name)
			}
			owned = append(owned, v1alpha1.CRDDescription{
				Name: c.definition.Name, Version: v.Name, Kind: spec.Names.Kind, DisplayName: spec.Names.Kind,
				Description: strings.Join(strings.Fields(v.Schema.OpenAPIV3Schema.Description), " "),
			})
		}
	}
	return owned, nil
}

// permissions are the rules of all roles. OLM binds them to the ServiceAccount.
func (i *installation) permissions() (namespaced, cluster []v1alpha1.StrategyDeploymentPermissions) {
	names := make([]string, 0, len(i.roles))
	for name := range i.roles {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		granted := v1alpha1.StrategyDeploymentPermissions{ServiceAccountName: i.account.Name, Rules: i.roles[name].rules}
		if name == clusterRole {
			cluster = append(cluster, granted)
		} else {
			namespaced = append(namespaced, granted)
		}
	}
	return namespaced, cluster
}

// watching returns the Deployment of the installation, which works in the namespaces that OLM says.
func watching(d appsv1.Deployment) (v1alpha1.StrategyDeploymentSpec, error) {
	spec := *d.Spec.DeepCopy()
	if len(spec.Template.Spec.Containers) != 1 {
		return v1alpha1.StrategyDeploymentSpec{}, errors.New("the Pod of druid does not have one container")
	}
	c := &spec.Template.Spec.Containers[0]
	if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--namespaces") }) {
		return v1alpha1.StrategyDeploymentSpec{}, errors.New("the installation sets --namespaces, and OLM chooses the namespaces")
	}
	c.Args = append(c.Args, "--namespaces=$(DRUID_NAMESPACES)")
	c.Env = append(c.Env, corev1.EnvVar{
		Name: "DRUID_NAMESPACES", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: targets}},
	})
	return v1alpha1.StrategyDeploymentSpec{Name: d.Name, Label: d.Labels, Spec: spec}, nil
}
