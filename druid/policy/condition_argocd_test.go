package policy

import (
	"cmp"
	"os"
	"testing"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// argoHealth runs Argo CD's health check for the kind of the object, as Argo CD does: a Lua interpreter with its basic library, and the
// object in the global variable obj.
func argoHealth(t *testing.T, u *unstructured.Unstructured) (status, message string) {
	t.Helper()
	raw, err := os.ReadFile("../../manifests/gitops/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.UnmarshalStrict(raw, &patch); err != nil {
		t.Fatal(err)
	}
	script := patch.Data["resource.customizations.health."+v1alpha1.GroupVersion.Group+"_"+u.GetKind()]
	if script == "" {
		t.Fatalf("there is no health check for %s", u.GetKind())
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	if err := l.CallByParam(lua.P{Fn: l.NewFunction(lua.OpenBase), Protect: true}, lua.LString(lua.BaseLibName)); err != nil {
		t.Fatal(err)
	}
	l.SetGlobal("obj", luaValue(t, l, u.Object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	health, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the health check returned %v", l.Get(-1))
	}
	return health.RawGetString("status").String(), health.RawGetString("message").String()
}

// luaValue makes a value of Lua from one of an object.
func luaValue(t *testing.T, l *lua.LState, value any) lua.LValue {
	t.Helper()
	switch v := value.(type) {
	case nil:
		return lua.LNil
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, element := range v {
			table.Append(luaValue(t, l, element))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, element := range v {
			table.RawSetString(key, luaValue(t, l, element))
		}
		return table
	default:
		t.Fatalf("a value of type %T", value)
		return nil
	}
}

// TestArgoAgreesWithKstatus: Argo CD also knows a pause, which kstatus calls InProgress.
func TestArgoAgreesWithKstatus(t *testing.T) {
	same := map[string]string{"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}
	for _, s := range toolSituations() {
		u := s.cluster(t)
		got, message := argoHealth(t, u)
		kstatus := kstatusOf(t, u)
		want := same[kstatus]
		if toolReadings[s] == readsWaits {
			want = "Suspended"
		}
		if got != want {
			t.Errorf("%v: Argo CD says %s, want %s as kstatus says %s", s, got, want, kstatus)
		}
		if got != "Healthy" && got != "Suspended" && message != "The message." {
			t.Errorf("%v: Argo CD says %s: %q, want the message of the condition", s, got, message)
		}
	}
}

func TestArgoWaitsForDruid(t *testing.T) {
	well := toolSituation{v1alpha1.ConditionReady, "True", v1alpha1.ReasonQuorate}
	for name, change := range map[string]func(*unstructured.Unstructured){
		"edited":         func(u *unstructured.Unstructured) { u.SetGeneration(3) },
		"without status": func(u *unstructured.Unstructured) { delete(u.Object, "status") },
		"with the default": func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"observedGeneration": int64(-1)}
		},
		"without conditions": func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"observedGeneration": int64(2)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := well.cluster(t)
			change(u)
			if got, message := argoHealth(t, u); got != "Progressing" || message != "druid has not accepted the spec yet" {
				t.Errorf("Argo CD says %s: %q", got, message)
			}
		})
	}
}

func TestArgoReadsSnapshots(t *testing.T) {
	for phase, want := range map[v1alpha1.SnapshotPhase]string{
		"": "Progressing", v1alpha1.SnapshotPending: "Progressing", v1alpha1.SnapshotRunning: "Progressing",
		v1alpha1.SnapshotSucceeded: "Healthy", v1alpha1.SnapshotFailed: "Degraded",
	} {
		snapshot := &v1alpha1.EtcdSnapshot{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdSnapshot"}}
		if phase != "" {
			snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: phase, Message: "It is " + string(phase)}
		}
		message := cmp.Or(snapshot.Status.Message, "druid has not accepted the EtcdSnapshot yet")
		if got, words := argoHealth(t, untyped(t, snapshot)); got != want || words != message {
			t.Errorf("phase %q: Argo CD says %s: %q, want %s: %q", phase, got, words, want, message)
		}
	}
}
