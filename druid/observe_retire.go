package druid

import (
	"context"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/manifests"
)

// endpointsPause between two looks at the endpoints of a member that leaves. They are not watched, because they are needed
// for a few seconds of a cluster's life; kube-controller-manager writes them within about a second. The pause is short
// because every member that leaves pays for it.
const endpointsPause = 250 * time.Millisecond

// observeEndpoints finds out whether the client Service still sends clients to the member that is about to leave. It reads
// live, and only before the member's Lease is marked.
func (r *Reconciler) observeEndpoints(ctx context.Context, o *observation) error {
	leaving := o.observed.Record.Retiring
	if leaving == nil {
		return nil
	}
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Name != leaving.Member || !m.Listed || leaving.Orders(m.Name, m.Says.Retire) {
			continue
		}
		routed, err := r.routed(ctx, o, m.Name)
		if err != nil {
			return err
		}
		if m.Routed = routed; routed {
			o.lookAgain(endpointsPause)
		}
	}
	return nil
}

func (r *Reconciler) routed(ctx context.Context, o *observation, member string) (bool, error) {
	var slices discoveryv1.EndpointSliceList
	service := manifests.ClientServiceName(o.cluster.Name)
	err := r.live.List(ctx, &slices, client.InNamespace(o.cluster.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	if err != nil {
		return false, fmt.Errorf("list the endpoints of Service %s/%s: %w", o.cluster.Namespace, service, err)
	}
	addresses := map[string]bool{}
	if pod := o.pods[member]; pod != nil {
		for _, ip := range pod.Status.PodIPs {
			addresses[ip.IP] = true
		}
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.TargetRef != nil && endpoint.TargetRef.Kind == "Pod" && endpoint.TargetRef.Name == member {
				return true, nil
			}
			for _, address := range endpoint.Addresses {
				if addresses[address] {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
