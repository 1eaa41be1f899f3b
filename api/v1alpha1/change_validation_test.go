package v1alpha1_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/versions"
)

func testRefusesChangesThatDataWouldNotSurvive(t *testing.T, clusters dynamic.ResourceInterface) {
	tests := map[string]struct {
		before, after []edit
		want          string // empty: accepted
	}{
		"memory instead of a volume":   {[]edit{{"spec.storage.storageClassName", nil}}, inMemory(), "storage.medium must not change"},
		"a volume instead of memory":   {inMemory(), []edit{{"spec.storage.storageClassName", nil}}, "storage.medium must not change"},
		"a disk instead of memory":     {inMemory(), onDisk(), "storage.medium must not change"},
		"a volume instead of a disk":   {onDisk(), []edit{{"spec.storage.storageClassName", nil}}, "storage.medium must not change"},
		"more of the disk":             {onDisk(), onDisk(edit{"spec.storage.size", "5Gi"}), ""},
		"more memory":                  {inMemory(), inMemory(edit{"spec.storage.size", "5Gi"}), ""},
		"a pause of what is in memory": {inMemory(), inMemory(edit{"spec.replicas", int64(0)}), "replicas must not be 0 with storage.medium: a paused cluster"},
		"a smaller volume":             {nil, []edit{{"spec.storage.size", "3Gi"}}, "storage.size must not decrease, because Kubernetes cannot"},
		"a larger volume":              {nil, []edit{{"spec.storage.size", "5Gi"}}, ""},
		"the same size, otherwise put": {nil, []edit{{"spec.storage.size", "4096Mi"}}, ""},
		"another storage class":        {nil, []edit{{"spec.storage.storageClassName", "slow"}}, "storage.storageClassName must not change"},
		"no storage class any more":    {nil, []edit{{"spec.storage.storageClassName", nil}}, "storage.storageClassName must not change"},
		"a storage class all at once":  {[]edit{{"spec.storage.storageClassName", nil}}, nil, "storage.storageClassName must not change"},
		"no provisioning any more": {[]edit{{"spec.storage.storageClassName", ""}}, []edit{{"spec.storage.storageClassName", nil}},
			"storage.storageClassName must not change"},
		"no provisioning all at once": {[]edit{{"spec.storage.storageClassName", nil}}, []edit{{"spec.storage.storageClassName", ""}},
			"storage.storageClassName must not change"},
		"still no provisioning": {[]edit{{"spec.storage.storageClassName", ""}},
			[]edit{{"spec.storage.storageClassName", ""}, {"spec.storage.size", "5Gi"}}, ""},
		"a newer patch":                 {nil, []edit{{"spec.version", "3.6.17"}}, ""},
		"an older patch":                {nil, []edit{{"spec.version", "3.6.15"}}, ""},
		"the next minor":                {nil, []edit{{"spec.version", "3.7.3"}}, ""},
		"the minor before":              {nil, []edit{{"spec.version", "3.5.33"}}, ""},
		"two minors back":               {[]edit{{"spec.version", "3.7.3"}}, []edit{{"spec.version", "3.5.33"}}, "version must not decrease by more than"},
		"another restore":               {nil, []edit{{restoreField + ".to", map[string]any{"revision": int64(7)}}}, "bootstrap must not change"},
		"a restore after the bootstrap": {[]edit{{"spec.bootstrap", nil}}, nil, "bootstrap must not change"},
		"no restore any more":           {nil, []edit{{"spec.bootstrap", nil}}, "bootstrap must not change"},
		"a restore and a join of it":    {nil, []edit{{"spec.bootstrap.join", joinOf("http://a:2379")}}, "bootstrap must not change"},
		"a join after the bootstrap":    {[]edit{{"spec.bootstrap", nil}}, []edit{{"spec.bootstrap", join("http://a:2379")}}, "bootstrap must not change"},
		"no join any more": {[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", map[string]any{}}},
			"bootstrap must not change"},
		"another Secret of a join": {
			[]edit{{"spec.bootstrap", joinSecurely("https://a:2379")}},
			[]edit{{"spec.bootstrap", joinSecurely("https://a:2379")}, {joinField + ".tls.secretRef.name", "other"}},
			"bootstrap must not change, except for join.removeExternalMembers;",
		},
		"TLS of peers while others are there": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://a:2379")}, {"spec.tls", object{"peer": automatic()}}},
			"tls.peer must not be added or removed while external members are in the cluster",
		},
		"no TLS of peers while others are there": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}, {"spec.tls", object{"peer": automatic()}}},
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, "tls.peer must not be added or removed while external members are in the cluster",
		},
		"TLS of peers when others may go": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}, {joinField + ".removeExternalMembers", true}},
			[]edit{{"spec.bootstrap", join("http://a:2379")}, {joinField + ".removeExternalMembers", true}, {"spec.tls", object{"peer": automatic()}}}, "",
		},
		"TLS of clients while others are there": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://a:2379")}, {"spec.tls", object{"client": automatic()}}}, "",
		},
		"other endpoints of a join": {[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://b:2379")}},
			"bootstrap must not change, except for join.removeExternalMembers;"},
		"the word that others may go": {
			[]edit{{"spec.bootstrap", join("http://a:2379")}}, []edit{{"spec.bootstrap", join("http://a:2379")}, {joinField + ".removeExternalMembers", true}}, "",
		},
		"no backup after a restore": {[]edit{{restoreField + ".from", nil}}, []edit{{restoreField + ".from", nil}, {"spec.backup", nil}}, ""},
		"another store":             {nil, []edit{{"spec.backup.store", map[string]any{"directory": map[string]any{"claimName": "a"}}}}, ""},
		"two minors at once":        {[]edit{{"spec.version", "3.5.33"}}, []edit{{"spec.version", "3.7.3"}}, "version must not skip a minor"},
	}
	for name, change := range tlsChanges {
		tests[name] = struct {
			before, after []edit
			want          string
		}{secure(change.before), secure(change.after), change.want}
	}
	maps.Copy(tests, authChanges)
	maps.Copy(tests, serviceChanges)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := edited(t, test.before...)
			before.SetName("")
			before.SetGenerateName("change-")
			before, err := clusters.Create(t.Context(), before, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create: %v", err)
			}
			after := edited(t, test.after...)
			after.SetName(before.GetName())
			after.SetResourceVersion(before.GetResourceVersion())
			_, err = clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("update said %v, want %q", err, test.want)
			}
		})
	}
}

// The minor is changed when all members run the one that was asked for before, or that is asked for again: never do
// more than two run at once.
func testChangesTheMinorWhenAllMembersRunOne(t *testing.T, clusters dynamic.ResourceInterface) {
	created, err := clusters.Create(t.Context(), edited(t, edit{"metadata.name", "minor"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	running := func(versions ...string) (members []v1alpha1.MemberStatus) {
		for i, version := range versions {
			members = append(members, v1alpha1.MemberStatus{Name: fmt.Sprintf("minor-%d", i), Status: v1alpha1.MemberReady, Version: version})
		}
		return members
	}
	const refused = "version must not change to another minor"
	for name, test := range map[string]struct {
		members []v1alpha1.MemberStatus
		version string
		want    string // empty: accepted
	}{
		"no member yet":                        {nil, "3.7.3", ""},
		"all run it":                           {running("3.6.16", "3.6.15", "3.6.16"), "3.7.3", ""},
		"one that never reported what it runs": {running("3.6.16", ""), "3.7.3", ""},
		"one runs the minor before":            {running("3.6.16", "3.5.33"), "3.7.3", refused},
		"another patch in the meantime":        {running("3.6.16", "3.5.33"), "3.6.17", ""},
		"back when all run it":                 {running("3.6.16", "3.6.16"), "3.5.33", ""},
		"back while none has left it":          {running("3.5.33", "3.5.33"), "3.5.33", ""},
		"back when one runs the other":         {running("3.6.16", "3.5.33"), "3.5.33", refused},
		"on when all run what is asked for":    {running("3.7.3", "3.7.3"), "3.7.3", ""},
		"a version that is not a version":      {running("3.6.16", "3.5.33"), "3", "version must be a release of etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.EtcdCluster{Status: v1alpha1.EtcdClusterStatus{Members: test.members}})
			if err != nil {
				t.Fatalf("convert: %v", err)
			}
			before, err := clusters.Get(t.Context(), created.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatalf("get: %v", err)
			}
			before.Object["status"] = object["status"]
			if before, err = clusters.UpdateStatus(t.Context(), before, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("update status: %v", err)
			}
			after := edited(t, edit{"spec.version", test.version})
			after.SetName(before.GetName())
			after.SetResourceVersion(before.GetResourceVersion())
			_, err = clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("update said %v, want %q", err, test.want)
			}
		})
	}
}

// The status that druid writes must be accepted, with every field set and with none.
// testKeepsTheWholeSpecThatWasAdopted: what comes back is equal, or druid would take it for an edit.
func testKeepsTheWholeSpecThatWasAdopted(t *testing.T, clusters dynamic.ResourceInterface) {
	created, err := clusters.Create(t.Context(), edited(t, edit{"metadata.name", "adopted"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	var cluster v1alpha1.EtcdCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &cluster); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Status.Adopt(cluster.Spec); err != nil {
		t.Fatal(err)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cluster)
	if err != nil {
		t.Fatal(err)
	}
	created.Object["status"] = object["status"]
	updated, err := clusters.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("update status: %v", err)
	}
	var after v1alpha1.EtcdCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(updated.Object, &after); err != nil {
		t.Fatal(err)
	}
	adopted, err := after.Status.Adopted()
	if err != nil || adopted == nil || !equality.Semantic.DeepEqual(*adopted, after.Spec) {
		t.Errorf("adopted is\n%+v\nwant\n%+v\n%v", adopted, after.Spec, err)
	}
}

// testAgreesWithTheRulesOfVersions holds that what the API server refuses is what druid refuses, for each pair of versions.
func testAgreesWithTheRulesOfVersions(t *testing.T, clusters dynamic.ResourceInterface) {
	all := []string{"3.5.30", "3.5.31", "3.5.33", "3.5.35", "3.6.11", "3.6.12", "3.6.14", "3.6.16", "3.7.0", "3.7.1", "3.7.3"}
	for _, from := range all {
		was, _ := versions.Parse(from)
		before := edited(t, edit{"spec.version", from})
		before.SetName("")
		before.SetGenerateName("version-")
		created, err := clusters.Create(t.Context(), before, metav1.CreateOptions{})
		if refused := versions.JudgeRelease(was).Verdict == versions.Refused; refused != (err != nil) {
			t.Fatalf("create with %s said %v, the rules refuse it: %t", from, err, refused)
		}
		if err != nil {
			continue
		}
		for _, to := range all {
			is, _ := versions.Parse(to)
			after := edited(t, edit{"spec.version", to})
			after.SetName(created.GetName())
			after.SetResourceVersion(created.GetResourceVersion())
			_, err := clusters.Update(t.Context(), after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			refused := versions.JudgeRelease(is).Verdict == versions.Refused || versions.JudgeStep(was, is).Verdict == versions.Refused
			if refused != (err != nil) {
				t.Errorf("%s to %s said %v, the rules refuse it: %t", from, to, err, refused)
			}
		}
	}
}
