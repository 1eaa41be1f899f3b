package druid

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// The Service of the leader follows spec.leaderService, and its label the leader. In between druid writes nothing.
func TestALeaderServiceHasTheLeader(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.serve(names, true)
	pods := s.uids(names, &corev1.Pod{})
	name := manifests.LeaderServiceName("demo")
	selected := func(what string, leaders ...string) {
		s.Helper()
		s.eventually(what, func() error {
			var got []string
			for _, member := range names {
				var pod corev1.Pod
				if err := s.fetch(member, &pod); err != nil {
					return err
				}
				if pod.Labels[manifests.LabelLeader] == manifests.LabelTrue {
					got = append(got, member)
				}
			}
			if diff := cmp.Diff(leaders, got); diff != "" {
				return fmt.Errorf("labels (-want +got):\n%s", diff)
			}
			return nil
		})
	}
	selected("label no Pod for a Service that is not requested")

	s.patchCluster(`{"spec":{"leaderService":{"enabled":true}}}`)
	s.eventually("create the Service", func() error {
		var service corev1.Service
		if err := s.fetch(name, &service); err != nil {
			return err
		}
		if service.Spec.Selector[manifests.LabelLeader] != manifests.LabelTrue || service.Spec.Selector[manifests.LabelClusterUID] == "" {
			return fmt.Errorf("it selects %v", service.Spec.Selector)
		}
		return nil
	})
	selected("label the leader", names[0])
	s.eventually("rest", func() error { return s.rests() })

	s.agent("demo", names[0], 1, leases.RoleMember)
	s.agent("demo", names[1], 2, leases.RoleLeader)
	selected("label the next leader", names[1])
	s.serve(names, true)
	s.eventually("rest again", func() error { return s.rests() })

	s.patchCluster(`{"spec":{"leaderService":null}}`)
	s.eventually("delete the Service", func() error { return s.gone(name, &corev1.Service{}) })
	selected("remove the label")
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods were replaced (-before +after):\n%s", diff)
	}
}

// A Service of the same name that the cluster does not own stays when the spec no longer requests one.
func TestALeaderServiceOfAnotherOwnerStays(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	other := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	other.Namespace, other.Name, other.Labels = s.namespace, manifests.LeaderServiceName("demo"), manifests.Labels("demo")
	if err := s.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	version := other.ResourceVersion
	s.whole(1)
	s.eventually("leave the Service alone", func() error {
		if err := s.fetch(other.Name, other); err != nil {
			return err
		}
		if other.ResourceVersion != version {
			return errors.New("it was changed")
		}
		return s.rests()
	})
}
