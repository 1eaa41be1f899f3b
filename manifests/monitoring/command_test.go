package monitoring

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// The test reads the columns as kubectl does.
func TestTheCommandOfAnAlertShowsTheCondition(t *testing.T) {
	command := regexp.MustCompile(`kubectl get etcdcluster -A -o custom-columns='([^']+)'`)
	alerts := 0
	for _, rule := range allRules() {
		of := regexp.MustCompile(`etcd_druid_oldest_transition_timestamp_seconds\{condition="(\w+)"`).FindStringSubmatch(rule.Expr)
		if of == nil || rule.Alert == "" {
			continue
		}
		alerts++
		found := command.FindStringSubmatch(rule.Annotations["description"])
		if found == nil {
			t.Errorf("%s has no command that shows which clusters it is about: %s", rule.Alert, rule.Annotations["description"])
			continue
		}
		cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"}}
		cluster.Status.Conditions = []metav1.Condition{
			{Type: "Another", Reason: "AnotherReason", Message: "another message"},
			{Type: of[1], Reason: "TheReason", Message: "the message"},
		}
		var got []string
		for column := range strings.SplitSeq(found[1], ",") {
			_, path, _ := strings.Cut(column, ":")
			got = append(got, evaluated(t, cluster, path))
		}
		if row := strings.Join(got, " "); row != "ns demo TheReason the message" {
			t.Errorf("the command of %s shows %q", rule.Alert, row)
		}
	}
	if alerts == 0 {
		t.Error("no alert is about a condition")
	}
	if !command.MatchString(read(t, "../../docs/reference/runbooks.md")) {
		t.Error("the runbooks do not have the command")
	}
}

func evaluated(t *testing.T, cluster *v1alpha1.EtcdCluster, path string) string {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		t.Fatal(err)
	}
	j := jsonpath.New("column").AllowMissingKeys(true)
	if err := j.Parse("{" + path + "}"); err != nil {
		t.Fatalf("column %s: %v", path, err)
	}
	var out bytes.Buffer
	if err := j.Execute(&out, content); err != nil {
		t.Fatalf("column %s: %v", path, err)
	}
	return out.String()
}
