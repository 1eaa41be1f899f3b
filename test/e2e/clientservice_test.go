package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// Clients reach the cluster at a port of each node, and at the Service of the leader, which follows the leadership. The network of Kubernetes
// prefers the member on the node of the client. The options change under a writer, and no Pod restarts.
func TestClientsReachServices(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	pods := podsOf(t, c, view)
	w := harness.Write(t, c.EtcdService(t))

	c.Edit(t, `{"spec":{"clientService":{"type":"NodePort","trafficDistribution":"PreferSameNode"},"leaderService":{"enabled":true}}}`)
	var nodePort int32
	harness.Eventually(t, scaleWithin, "a port of the nodes", func(ctx context.Context) error {
		service, err := serviceOf(ctx, c, manifests.ClientServiceName(c.Name))
		if err != nil {
			return err
		}
		if nodePort = service.Spec.Ports[0].NodePort; nodePort == 0 {
			return fmt.Errorf("the Service has type %s and no port of the nodes", service.Spec.Type)
		}
		return nil
	})
	var nodes corev1.NodeList
	if err := rig.Client.List(t.Context(), &nodes); err != nil || len(nodes.Items) < 3 {
		t.Fatalf("there are %d nodes: %v", len(nodes.Items), err)
	}
	for _, node := range nodes.Items {
		writesAt(t, c, addressOf(node), nodePort)
	}
	harness.Eventually(t, scaleWithin, "a preference for the node of each member", func(ctx context.Context) error {
		return prefersOwnNode(ctx, c, len(pods))
	})

	leadsAt := func(leader string) {
		t.Helper()
		harness.Eventually(t, healWithin, leader+" at the Service of the leader", func(ctx context.Context) error {
			return onlyLeaderIn(ctx, t, c, leader)
		})
	}
	leadsAt(view.Leader())
	next := view.Follower()
	c.MoveLeader(t, next)
	leadsAt(next)
	w.Stop(t, c.EtcdService(t))

	c.Edit(t, `{"spec":{"clientService":{"type":"ClusterIP"},"leaderService":{"enabled":false}}}`)
	harness.Eventually(t, scaleWithin, "neither a port of the nodes nor a Service of the leader", func(ctx context.Context) error {
		service, err := serviceOf(ctx, c, manifests.ClientServiceName(c.Name))
		if err == nil && (service.Spec.Type != corev1.ServiceTypeClusterIP || service.Spec.Ports[0].NodePort != 0) {
			err = fmt.Errorf("the Service has type %s and the port %d of the nodes", service.Spec.Type, service.Spec.Ports[0].NodePort)
		}
		if err != nil {
			return err
		}
		if _, err := serviceOf(ctx, c, manifests.LeaderServiceName(c.Name)); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("the Service of the leader is there (%w)", err)
		}
		return nil
	})
	refusedAt(t, c, addressOf(nodes.Items[0]), nodePort)
	if after := podsOf(t, c, view); !maps.Equal(after, pods) {
		t.Errorf("the Pods are %v, and were %v", after, pods)
	}
}

func serviceOf(ctx context.Context, c *harness.Cluster, name string) (*corev1.Service, error) {
	service := &corev1.Service{}
	err := rig.Client.Get(ctx, harness.Key(c.Namespace, name), service)
	return service, err
}

func addressOf(node corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

// writesAt says that a new client at the port of a node can write.
func writesAt(t *testing.T, c *harness.Cluster, node string, port int32) {
	t.Helper()
	harness.Eventually(t, scaleWithin, "a write at "+node, func(ctx context.Context) error {
		return put(ctx, c.EtcdAt(t, net.JoinHostPort(node, strconv.Itoa(int(port)))))
	})
}

// refusedAt says that the port of a node ends.
func refusedAt(t *testing.T, c *harness.Cluster, node string, port int32) {
	t.Helper()
	harness.Eventually(t, scaleWithin, "no member at "+node, func(ctx context.Context) error {
		if put(ctx, c.EtcdAt(t, net.JoinHostPort(node, strconv.Itoa(int(port))))) == nil {
			return errors.New("a new client was served")
		}
		return nil
	})
}

// put writes once with a client, which it closes.
func put(ctx context.Context, etcd *clientv3.Client) error {
	defer func() { _ = etcd.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := etcd.Put(ctx, "/service", "reached")
	return err
}

// endpointsOf are the endpoints of a Service.
func endpointsOf(ctx context.Context, c *harness.Cluster, service string) (all []discoveryv1.Endpoint, err error) {
	var slices discoveryv1.EndpointSliceList
	err = rig.Client.List(ctx, &slices, client.InNamespace(c.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	for _, slice := range slices.Items {
		all = append(all, slice.Endpoints...)
	}
	return all, err
}

// prefersOwnNode returns an error unless each member serves the clients on its node first.
func prefersOwnNode(ctx context.Context, c *harness.Cluster, members int) error {
	endpoints, err := endpointsOf(ctx, c, manifests.ClientServiceName(c.Name))
	if err != nil {
		return err
	}
	if len(endpoints) != members {
		return fmt.Errorf("there are %d endpoints", len(endpoints))
	}
	for _, endpoint := range endpoints {
		pod, err := c.Pod(ctx, endpoint.TargetRef.Name)
		if err != nil {
			return err
		}
		if endpoint.Hints == nil || len(endpoint.Hints.ForNodes) != 1 || endpoint.Hints.ForNodes[0].Name != pod.Spec.NodeName {
			return fmt.Errorf("%s on %s has the hints %+v", pod.Name, pod.Spec.NodeName, endpoint.Hints)
		}
	}
	return nil
}

// onlyLeaderIn returns an error unless the leader alone is in its Service, and a new client there is at the leader of etcd.
func onlyLeaderIn(ctx context.Context, t *testing.T, c *harness.Cluster, leader string) error {
	t.Helper()
	name := manifests.LeaderServiceName(c.Name)
	endpoints, err := endpointsOf(ctx, c, name)
	if err != nil {
		return err
	}
	if len(endpoints) != 1 || endpoints[0].TargetRef.Name != leader {
		return fmt.Errorf("the Service has the endpoints %+v", endpoints)
	}
	service, err := serviceOf(ctx, c, name)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(config.ClientPort))
	etcd := c.EtcdAt(t, address)
	defer func() { _ = etcd.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	status, err := etcd.Status(ctx, address)
	if err == nil && status.Leader != status.Header.MemberId {
		err = fmt.Errorf("the client is at member %x, and %x leads", status.Header.MemberId, status.Leader)
	}
	return err
}
