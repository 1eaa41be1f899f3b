package plugin

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

func TestPagesAsData(t *testing.T) {
	s := selection(" --context prod")
	member, plan, tls := situation(t, "member-down"), situation(t, "quorum-lost-with-a-plan"), situation(t, "tls")
	for name, data := range map[string]any{
		"why":     explanationOf(view.Of(member, situations.Now)),
		"recover": s.recoveryData(plan.Cluster),
		"none":    s.recoveryData(member.Cluster),
		"connect": s.connectionData(tls.Cluster),
	} {
		var out bytes.Buffer
		if err := printData(&out, data, formatYAML); err != nil {
			t.Fatal(err)
		}
		golden.File(t, "testdata/data/"+name+".yaml", out.String())
	}
}

// Programs read what status and why print about a cluster in each of these states, and what get prints about all of them.
func TestEachStateAsData(t *testing.T) {
	printed := map[string]any{}
	var all []view.Cluster
	for _, name := range []string{"serving", "member-down", "quorum-lost", "backups-failing", "paused"} {
		o := situation(t, name)
		c := view.Of(o, situations.Now)
		printed["status/"+name], printed["why/"+name] = c, explanationOf(c)
		o.Cluster.Namespace = name
		all = append(all, view.Of(o, situations.Now))
	}
	view.Sort(all)
	printed["get"] = all
	for name, data := range printed {
		var out bytes.Buffer
		if err := printData(&out, data, formatJSON); err != nil {
			t.Fatal(err)
		}
		golden.File(t, "testdata/json/"+name+".json", out.String())
	}
}

func TestPagesPrintData(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	for _, args := range [][]string{{"why", "demo"}, {"recover", "demo"}, {"connect", "demo"}, {"version"}} {
		out, errs, code := s.run(append(args, "-o", "json")...)
		var data map[string]any
		if err := json.Unmarshal([]byte(out), &data); err != nil || code != 0 || errs != "" {
			t.Errorf("%v: exit code %d, %v, %s%s", args, code, err, out, errs)
		}
		out, _, _ = s.run(append(args, "-o", "yaml")...)
		if args[0] == "version" {
			contains(t, out, "reads: etcd.druid.dev/v1alpha1", "serves:\n- etcd.druid.dev/v1alpha1")
			continue
		}
		contains(t, out, "cluster: demo", "namespace: "+s.namespace)
		if _, errs, code := s.run(append(args, "-o", "xml")...); code != 1 || !bytes.Contains([]byte(errs), []byte("want one of table, json, yaml")) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	out, errs, code := s.run("version", "-o", "json", "--context", "nowhere")
	contains(t, out, `"plugin"`)
	if contains(t, errs, "nowhere"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
