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

// TestRunbookCommandShowsCondition: the command of the runbooks shows the condition.
// The test reads the columns as kubectl does.
func TestRunbookCommandShowsCondition(t *testing.T) {
	found := regexp.MustCompile(`kubectl get etcdcluster -A -o custom-columns='([^']+)'`).FindStringSubmatch(read(t, "../../docs/reference/runbooks.md"))
	if found == nil {
		t.Fatal("the runbooks have no command that lists the clusters in a condition")
	}
	cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"}}
	cluster.Status.Conditions = []metav1.Condition{
		{Type: "Another", Reason: "AnotherReason", Message: "another message"},
		{Type: "Degraded", Reason: "TheReason", Message: "the message"},
	}
	var got []string
	for column := range strings.SplitSeq(found[1], ",") {
		_, path, _ := strings.Cut(column, ":")
		got = append(got, evaluated(t, cluster, path))
	}
	if row := strings.Join(got, " "); row != "ns demo TheReason the message" {
		t.Errorf("the command shows %q", row)
	}
}

// An alert about a condition names its cluster, and has the command that shows the message.
func TestConditionAlertNamesCluster(t *testing.T) {
	alerts := 0
	for _, rule := range allRules() {
		if rule.Alert == "" || !strings.Contains(rule.Expr, "etcd_druid_condition_transition_timestamp_seconds") {
			continue
		}
		alerts++
		if summary := rule.Annotations["summary"]; !strings.Contains(summary, ofCondition) || strings.Contains(summary, "CLUSTER") {
			t.Errorf("%s does not name its cluster: %s", rule.Alert, summary)
		}
		if !strings.Contains(rule.Annotations["description"], describeIt) {
			t.Errorf("%s has no command: %s", rule.Alert, rule.Annotations["description"])
		}
	}
	if alerts == 0 {
		t.Error("no alert is about a condition")
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
