package reference

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/test/golden"
)

// definitions are the generated CustomResourceDefinitions.
const definitions = "../../manifests/install/etcd.druid.dev_*.yaml"

// kubernetesTypes are fields of types that Kubernetes documents.
var kubernetesTypes = map[string]string{
	"spec.affinity":                  "Affinity",
	"spec.imagePullSecrets":          "LocalObjectReference",
	"spec.networkPolicy.agentAPI":    "NetworkPolicyPeer",
	"spec.networkPolicy.clients":     "NetworkPolicyPeer",
	"spec.networkPolicy.metrics":     "NetworkPolicyPeer",
	"spec.resources":                 "ResourceRequirements",
	"spec.tolerations":               "Toleration",
	"spec.topologySpreadConstraints": "TopologySpreadConstraint",
	"status.conditions":              "Condition",
}

// maxRule is the length of a rule that people read. Longer ones are regular expressions, which their messages explain.
const maxRule = 160

// definition is what the page needs of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Names struct {
			Kind       string
			ShortNames []string
		}
		Versions []struct {
			Name                     string
			AdditionalPrinterColumns []struct{ Name, JSONPath string }
			Schema                   struct{ OpenAPIV3Schema schema }
		}
	}
}

// schema is the type of a field.
type schema struct {
	Type, Format, Description, Pattern string
	Default                            json.RawMessage
	Enum                               []string
	Minimum, Maximum                   *int64
	MinLength, MaxLength               *int64
	MinItems, MaxItems                 *int64
	MaxProperties                      *int64
	Required                           []string
	Properties                         map[string]schema
	Items, AdditionalProperties        *schema
	AnyOf                              []schema
	IntOrString                        bool                             `json:"x-kubernetes-int-or-string"`
	Unknown                            bool                             `json:"x-kubernetes-preserve-unknown-fields"`
	Rules                              []struct{ Rule, Message string } `json:"x-kubernetes-validations"`
}

func TestAPI(t *testing.T) {
	paths, err := filepath.Glob(definitions)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", definitions, len(paths), err)
	}
	var page strings.Builder
	page.WriteString(`# API

<!-- Written by go test ./test/reference -update: do not edit. -->

All fields of the kinds that druid defines. A rule is a condition in the
[Common Expression Language](https://kubernetes.io/docs/reference/using-api/cel/). The API server rejects an object that does
not fulfill it, with the message before it. Rules that are long regular expressions are left out.
`)
	linked := map[string]bool{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Spec.Versions {
			fmt.Fprintf(&page, "\n## %s\n\n", d.Spec.Names.Kind)
			fmt.Fprintf(&page, "Version `%s`, short names `%s`. %s\n", v.Name, strings.Join(d.Spec.Names.ShortNames, "`, `"),
				prose(join(v.Schema.OpenAPIV3Schema.Description)))
			var columns [][]string
			for _, c := range v.AdditionalPrinterColumns {
				columns = append(columns, []string{c.Name, code(c.JSONPath)})
			}
			page.WriteString("\n" + golden.Table([]string{"Column", "Field"}, columns))
			k := kind{name: d.Spec.Names.Kind, t: t, page: &page, seen: map[string]schema{}, linked: linked}
			k.rules(v.Schema.OpenAPIV3Schema)
			for _, part := range []string{"spec", "status"} {
				k.section(part, v.Schema.OpenAPIV3Schema.Properties[part])
			}
		}
	}
	for path := range kubernetesTypes {
		if !linked[path] {
			t.Errorf("%s is no field: take it out of kubernetesTypes", path)
		}
	}
	golden.File(t, pages+"api.md", page.String())
}

// kind renders the fields of one kind.
type kind struct {
	name string
	t    *testing.T
	page *strings.Builder
	// seen are the types that were rendered, by their path: the same type is rendered once.
	seen   map[string]schema
	linked map[string]bool
	rows   [][]string
}

// section renders spec or status: its own fields in one table, and each field that has fields in a table of its own.
func (k *kind) section(path string, s schema) {
	nested := map[string]schema{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		k.row(path, name, s, field)
		if kubernetesTypes[path+"."+name] == "" && (len(field.Properties) > 0 || field.Items != nil && len(field.Items.Properties) > 0) {
			nested[name] = field
		}
	}
	k.table(path, s)
	for _, name := range slices.Sorted(maps.Keys(nested)) {
		field := nested[name]
		k.fields(path+"."+name, field)
		k.table(path+"."+name, field)
	}
}

// fields adds a row for each field below path.
func (k *kind) fields(path string, s schema) {
	if s.Items != nil {
		k.fields(path+"[]", *s.Items)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		if k.row(path, name, s, field) {
			k.fields(path+"."+name, field)
		}
	}
}

// row adds a row, and says whether the fields of the field are to follow.
func (k *kind) row(path, name string, parent, field schema) bool {
	full := path + "." + name
	if field.Description == "" {
		k.t.Errorf("%s has no description", full)
	}
	description, follow := []string{cell(about(name, field.Description))}, true
	if kubernetes := kubernetesTypes[full]; kubernetes != "" {
		k.linked[full], follow = true, false
		description = append(description, "Kubernetes documents the type `"+kubernetes+"`.")
	}
	if same := k.sameAs(full, field); same != "" {
		follow = false
		description = append(description, "The fields are those of `"+same+"`.")
	}
	if limits := field.limits(); limits != "" {
		description = append(description, "Limits: "+limits+".")
	}
	for _, rule := range field.Rules {
		description = append(description, "Rule: "+ruleText(k.t, full, rule.Rule, rule.Message))
	}
	if field.Items != nil {
		for _, rule := range field.Items.Rules {
			description = append(description, "Rule of each item: "+ruleText(k.t, full, rule.Rule, rule.Message))
		}
	}
	text := field.text()
	if slices.Contains(parent.Required, name) {
		text += ", required"
	}
	k.rows = append(k.rows, []string{code(strings.TrimPrefix(full, "spec.")), text, code(cell(string(field.Default))), strings.Join(description, "<br>")})
	return follow
}

// sameAs is the path of an equal type with fields, which is rendered above.
func (k *kind) sameAs(path string, field schema) string {
	if len(field.Properties) < 2 {
		return ""
	}
	field.Description = ""
	for _, other := range slices.Sorted(maps.Keys(k.seen)) {
		if reflect.DeepEqual(k.seen[other], field) {
			return other
		}
	}
	k.seen[path] = field
	return ""
}

func (k *kind) table(path string, s schema) {
	fmt.Fprintf(k.page, "\n### %s `%s`\n\n%s\n\n", k.name, path, sentence(about(path[strings.LastIndex(path, ".")+1:], s.Description)))
	k.page.WriteString(golden.Table([]string{"Field", "Type", "Default", "Description"}, k.rows))
	k.rows = nil
	if !strings.Contains(path, ".") { // those of other fields are in their rows
		k.rules(s)
	}
}

func (k *kind) rules(s schema) {
	for i, rule := range s.Rules {
		if i == 0 {
			k.page.WriteString("\nRules:\n\n")
		}
		fmt.Fprintf(k.page, "- %s\n", ruleText(k.t, "the object", rule.Rule, rule.Message))
	}
}

func ruleText(t *testing.T, path, rule, message string) string {
	t.Helper()
	if message == "" {
		t.Errorf("%s: rule %s has no message", path, rule)
	}
	text := sentence(cell(about(path[strings.LastIndex(path, ".")+1:], message)))
	if len(rule) <= maxRule {
		text += " `" + cell(rule) + "`"
	}
	return text
}

// text names the type.
func (s schema) text() string {
	switch {
	case s.IntOrString && s.Pattern != "":
		return "quantity"
	case s.IntOrString:
		return "integer or string"
	case s.Items != nil:
		return "list of " + s.Items.text() + "s"
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.text() + "s"
	case strings.HasPrefix(s.Format, "date"):
		return "time"
	default:
		return cmp.Or(s.Type, "any")
	}
}

// limits of a value, and of the items of a list.
func (s schema) limits() string {
	var all []string
	add := func(low, high *int64, after string) {
		switch {
		case low != nil && high != nil:
			all = append(all, fmt.Sprintf("%d to %d%s", *low, *high, after))
		case low != nil:
			all = append(all, fmt.Sprintf("at least %d%s", *low, after))
		case high != nil:
			all = append(all, fmt.Sprintf("at most %d%s", *high, after))
		}
	}
	if len(s.Enum) > 0 {
		all = append(all, "one of `"+strings.Join(s.Enum, "`, `")+"`")
	}
	add(s.Minimum, s.Maximum, "")
	add(s.MinLength, s.MaxLength, " characters")
	add(s.MinItems, s.MaxItems, " items")
	add(nil, s.MaxProperties, " entries")
	if s.Pattern != "" && !s.IntOrString {
		all = append(all, "pattern `"+cell(s.Pattern)+"`")
	}
	if s.Items != nil {
		if items := s.Items.limits(); items != "" {
			all = append(all, "of each item: "+items)
		}
	}
	return strings.Join(all, "; ")
}
