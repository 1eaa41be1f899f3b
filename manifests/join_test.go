package manifests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// The word that others may go reaches the agents that run: it must restart no etcd.
func TestTheWordThatOthersMayGoChangesNoPod(t *testing.T) {
	cluster := plain()
	cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{Endpoints: []v1alpha1.JoinEndpoint{"http://a:2379", "http://b:2379"}}}
	render := func() (pod, config string) {
		t.Helper()
		made, err := Pod(cluster, member, options())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		if command := made.Spec.InitContainers[1].Command; !slices.Contains(command, "--join=http://a:2379,http://b:2379") {
			t.Errorf("the agent is started with %v", command)
		}
		content, err := configMap(cluster, options().Reloadable)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), content.Data["config.yaml"]
	}
	before, kept := render()
	cluster.Spec.Bootstrap.Join.RemoveOthers = true
	after, released := render()
	if before != after {
		t.Errorf("the Pod was\n%s\nand is\n%s", before, after)
	}
	if strings.Contains(kept, "removeOthers") || !strings.Contains(released, "removeOthers: true") {
		t.Errorf("the agents read\n%s\nand then\n%s", kept, released)
	}
}
