package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

const within = 3 * time.Minute

func BenchmarkFormation(b *testing.B) {
	for b.Loop() {
		namespace := rig.MakeNamespace(b)
		stop := rig.WatchFormation(b, namespace, 3)
		c := rig.ApplyIn(b, namespace)
		took := c.AwaitReady(b, 3, within)
		steps := stop()
		report.seconds("apply → three voters Ready", "≤ 10 s", took)
		for _, s := range steps {
			report.seconds("· "+s.Name, "", s.At)
		}
		c.Destroy(b)
	}
}

func BenchmarkFormationOfOne(b *testing.B) {
	for b.Loop() {
		c := rig.Apply(b, harness.Replicas(1))
		report.seconds("apply → one voter Ready", "≤ 4 s", c.AwaitReady(b, 1, within))
		c.Destroy(b)
	}
}

// BenchmarkReference is the bare run next to which the others are read: three etcds without any operator, as a StatefulSet
// whose Pods start at once with a static member list and a probe every second.
func BenchmarkReference(b *testing.B) {
	for b.Loop() {
		namespace := rig.MakeNamespace(b)
		manifest := strings.NewReplacer("NAMESPACE", namespace, "VERSION", rig.EtcdVersion(b, "3.6")).Replace(reference)
		begun := time.Now()
		kubectl(b, manifest, "apply", "-f", "-")
		kubectl(b, "", "rollout", "status", "--namespace="+namespace, "statefulset/bare", "--timeout=3m")
		report.seconds("reference: StatefulSet of three bare etcds, apply → Ready", "", time.Since(begun))
		harness.DestroyNamespace(b, rig, namespace)
	}
}

func kubectl(b *testing.B, input string, args ...string) {
	b.Helper()
	cmd := rig.Lab.KubectlCmd(b.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
}

const reference = `
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
  replicas: 3
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
        - --initial-cluster=bare-0=http://bare-0.bare.NAMESPACE.svc:2380,bare-1=http://bare-1.bare.NAMESPACE.svc:2380,bare-2=http://bare-2.bare.NAMESPACE.svc:2380
        readinessProbe: {httpGet: {path: /readyz, port: 2381}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: data, mountPath: /var/lib/etcd}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
`
