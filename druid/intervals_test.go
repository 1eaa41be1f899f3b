package druid

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/manifests"
)

// The agents read their file again: no Pod is replaced for it.
func TestIntervalsOfTheAgentsChangeWithoutANewPod(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	before := s.uids(names, &corev1.Pod{})
	stop()

	s.startDruid(func(o *Options) {
		o.AgentRenewInterval, o.AgentLeaseDuration, o.SuperfluousGracePeriod = 5*time.Second, 15*time.Second, 20*time.Second
	})
	s.eventually("the agents' configuration", func() error {
		var object corev1.ConfigMap
		if err := s.fetch(manifests.AgentName("demo"), &object); err != nil {
			return err
		}
		got, err := config.ParseReloadable([]byte(object.Data[config.ConfigFile]))
		if err != nil {
			return err
		}
		if got.RenewInterval != config.Duration(5*time.Second) || got.LeaseDuration != config.Duration(15*time.Second) || got.SuperfluousGracePeriod != config.Duration(20*time.Second) {
			return fmt.Errorf("it has %s, %s and %s, want 5s, 15s and 20s", got.RenewInterval, got.LeaseDuration, got.SuperfluousGracePeriod)
		}
		return nil
	})
	s.eventually("rest", func() error { return s.rests() })
	for name, uid := range s.uids(names, &corev1.Pod{}) {
		if uid != before[name] {
			t.Errorf("Pod %s is another one since the intervals changed", name)
		}
	}
}
