package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// formBare forms a cluster of etcds without any operator, as a StatefulSet whose Pods start at once with a static member list and a probe
// every second. It returns how long that took.
func formBare(b *testing.B, namespace string, members int, storage v1alpha1.StorageMedium) time.Duration {
	b.Helper()
	var list []string
	for i := range members {
		list = append(list, fmt.Sprintf("bare-%d=http://bare-%[1]d.bare.%s.svc:2380", i, namespace))
	}
	manifest := strings.NewReplacer("NAMESPACE", namespace, "VERSION", rig.EtcdVersion(b, "3.6"), "REPLICAS", fmt.Sprint(members),
		"MEMBERS", strings.Join(list, ","), "STORAGE", bareStorage[storage]).Replace(bareEtcd)
	begun := time.Now()
	kubectl(b, manifest, "apply", "-f", "-")
	kubectl(b, "", "rollout", "status", "--namespace="+namespace, "statefulset/bare", "--timeout=3m")
	return time.Since(begun)
}

func kubectl(b *testing.B, input string, args ...string) {
	b.Helper()
	cmd := rig.Lab.KubectlCmd(b.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
}

// persistent lets each member have a PersistentVolumeClaim.
const persistent v1alpha1.StorageMedium = ""

// bareStorage is what stands in the StatefulSet for each medium.
var bareStorage = map[v1alpha1.StorageMedium]string{
	persistent: `
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
`,
	v1alpha1.StorageDisk: `
      volumes: [{name: data, emptyDir: {}}]
`,
	v1alpha1.StorageMemory: `
      volumes: [{name: data, emptyDir: {medium: Memory}}]
`,
}

const bareEtcd = `
apiVersion: v1
kind: Service
metadata: {name: bare, namespace: NAMESPACE}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: bare}
  ports: [{name: peer, port: 2380}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: bare, namespace: NAMESPACE}
spec:
  replicas: REPLICAS
  serviceName: bare
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: bare}}
  template:
    metadata: {labels: {app: bare}}
    spec:
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: etcd
        image: gcr.io/etcd-development/etcd:vVERSION
        env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        command:
        - /usr/local/bin/etcd
        - --name=$(NAME)
        - --data-dir=/var/lib/etcd/data
        - --listen-peer-urls=http://0.0.0.0:2380
        - --initial-advertise-peer-urls=http://$(NAME).bare.NAMESPACE.svc:2380
        - --listen-client-urls=http://0.0.0.0:2379
        - --advertise-client-urls=http://$(NAME).bare.NAMESPACE.svc:2379
        - --listen-metrics-urls=http://0.0.0.0:2381
        - --initial-cluster=MEMBERS
        readinessProbe: {httpGet: {path: /readyz, port: 2381}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: data, mountPath: /var/lib/etcd}]
STORAGE`
