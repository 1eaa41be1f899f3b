package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// The package and the channel of a release in a catalog of OLM. druid is alpha software, and OLM's convention calls
// such a channel candidate.
const (
	packageName = "druid"
	channel     = "candidate"
)

// Source is what a bundle is made of.
type Source struct {
	// Install is install.yaml with the image of the release.
	Install []byte
	// Samples are YAML files with one EtcdCluster or EtcdSnapshot each. The forms of OLM start with them.
	Samples [][]byte
	// Icon is an image in SVG.
	Icon []byte
	// Version is a semantic version without a v.
	Version string
	// Kubernetes is the oldest version of Kubernetes, like 1.32.0.
	Kubernetes string
	// Architectures are those of the image, like amd64. Its operating system is Linux.
	Architectures []string
	// At is the time of the release.
	At time.Time
}

// File is a file of the bundle, with a path that begins with bundle/.
type File struct {
	Name    string
	Content []byte
}

// Make returns the files of the bundle, and the objects of the installation that the user applies besides, as YAML.
func Make(s Source) (files []File, besides []byte, err error) {
	all, err := parse(s.Install)
	if err != nil {
		return nil, nil, err
	}
	csv, err := s.serviceVersion(all)
	if err != nil {
		return nil, nil, fmt.Errorf("make the ClusterServiceVersion: %w", err)
	}
	files = []File{
		{"bundle/bundle.Dockerfile", dockerfile()},
		{"bundle/manifests/druid.clusterserviceversion.yaml", csv},
	}
	budget, err := render(withoutNamespace(all.budget))
	if err != nil {
		return nil, nil, err
	}
	files = append(files, File{"bundle/manifests/druid.poddisruptionbudget.yaml", budget})
	for _, c := range all.crds {
		files = append(files, File{"bundle/manifests/" + c.definition.Spec.Group + "_" + c.definition.Spec.Names.Plural + ".yaml", c.text})
	}
	files = append(files, File{"bundle/metadata/annotations.yaml", annotations()})
	return files, bytes.Join(all.besides, []byte("---\n")), nil
}

// withoutNamespace returns the object without its namespace: OLM creates it in that of the Subscription.
func withoutNamespace(b policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	b.Namespace = ""
	return &b
}

// render writes an object without its status and without empty fields that only Go has.
func render(object any) ([]byte, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	dropNull(fields)
	return yaml.Marshal(fields)
}

// dropNull removes the fields that are null, like the time of creation of a Pod's template.
func dropNull(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			if field == nil {
				delete(v, name)
			}
			dropNull(field)
		}
	case []any:
		for _, field := range v {
			dropNull(field)
		}
	}
}

// labels are those of the image of a bundle, by the format registry+v1. They are in annotations.yaml too.
var labels = [][2]string{
	{"operators.operatorframework.io.bundle.mediatype.v1", "registry+v1"},
	{"operators.operatorframework.io.bundle.manifests.v1", "manifests/"},
	{"operators.operatorframework.io.bundle.metadata.v1", "metadata/"},
	{"operators.operatorframework.io.bundle.package.v1", packageName},
	{"operators.operatorframework.io.bundle.channels.v1", channel},
	{"operators.operatorframework.io.bundle.channel.default.v1", channel},
}

func annotations() []byte {
	var text strings.Builder
	text.WriteString("annotations:\n")
	for _, l := range labels {
		fmt.Fprintf(&text, "  %s: %s\n", l[0], l[1])
	}
	return []byte(text.String())
}

func dockerfile() []byte {
	var text strings.Builder
	text.WriteString("FROM scratch\n")
	for _, l := range labels {
		fmt.Fprintf(&text, "LABEL %s=%s\n", l[0], l[1])
	}
	text.WriteString("COPY manifests /manifests/\nCOPY metadata /metadata/\n")
	return []byte(text.String())
}
