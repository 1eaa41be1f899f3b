package gitops

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// Kstatus is the status of an object that kstatus computes, such as Current, and its message.
func Kstatus(t testing.TB, object *unstructured.Unstructured) (state, message string) {
	t.Helper()
	result, err := status.Compute(object)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status.String(), result.Message
}

// ArgoHealth runs the health check of Argo CD for the kind of the object, as Argo CD does: a Lua interpreter with its basic library,
// and the object in the global variable obj. repo is the directory of the repository.
func ArgoHealth(t testing.TB, repo string, object *unstructured.Unstructured) (state, message string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repo, "manifests/gitops/argocd-cm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.UnmarshalStrict(raw, &patch); err != nil {
		t.Fatal(err)
	}
	script := patch.Data["resource.customizations.health."+v1alpha1.GroupVersion.Group+"_"+object.GetKind()]
	if script == "" {
		t.Fatalf("there is no health check for %s", object.GetKind())
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	if err := l.CallByParam(lua.P{Fn: l.NewFunction(lua.OpenBase), Protect: true}, lua.LString(lua.BaseLibName)); err != nil {
		t.Fatal(err)
	}
	l.SetGlobal("obj", luaValue(t, l, object.Object))
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
func luaValue(t testing.TB, l *lua.LState, value any) lua.LValue {
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
