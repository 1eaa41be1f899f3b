package supervisor

import (
	"context"
	"fmt"

	"github.com/etcd-druid/druid/test/rig/plan"
)

// manifest is an object that every rig has.
type manifest struct{ path, object string }

// dns makes the DNS Service, whose address kube-proxy would refuse if no
// Service had it.
func dns(net plan.Network) []manifest {
	return []manifest{
		{"/api/v1/namespaces/kube-system/services/kube-dns", `
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: "` + net.DNS + `"
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: dns-tcp, port: 53, protocol: TCP}
`},
		{"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns", `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns}
addressType: ` + net.AddressType + `
ports:
- {name: dns, port: 53, protocol: UDP}
- {name: dns-tcp, port: 53, protocol: TCP}
endpoints:
- addresses: ["` + net.ControlPlane + `"]
`},
	}
}

// storageClasses are those that README.md names.
var storageClasses = []manifest{
	{"/apis/storage.k8s.io/v1/storageclasses/rig-local", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: rig-local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: rig/local
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
`},
	{"/apis/storage.k8s.io/v1/storageclasses/rig-network", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: rig-network}
provisioner: rig/network
volumeBindingMode: Immediate
reclaimPolicy: Delete
allowVolumeExpansion: true
`},
	{"/apis/storage.k8s.io/v1/storageclasses/rig-network-remount", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: rig-network-remount}
provisioner: rig/network
parameters: {grows: when-mounted}
volumeBindingMode: Immediate
reclaimPolicy: Delete
allowVolumeExpansion: true
`},
}

func (s *Supervisor) applyManifests(ctx context.Context) error {
	for _, m := range append(dns(s.plan.Network()), storageClasses...) {
		if err := s.kube.apply(ctx, m.path, []byte(m.object)); err != nil {
			return fmt.Errorf("apply the rig's manifests: %w", err)
		}
	}
	return nil
}
