package harness

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/rig/lab"
)

const (
	apiServersName  = "kube-apiserver"
	apiServersPort  = 6443
	apiServersToken = "token-of-the-test"
	// drainSeconds is how long a kube-apiserver serves after it is asked to end, so that kube-proxy sends it no new connection.
	drainSeconds = 5
)

// APIServers are kube-apiservers in Pods behind a Service. They keep their objects in the etcd of a cluster, with the flags of the guide.
type APIServers struct {
	cluster *Cluster
	secret  string
	names   []string
	address string
}

// StartAPIServers starts n kube-apiservers that connect with a Secret for clients, one after the other.
func (c *Cluster) StartAPIServers(t testing.TB, secret string, n int) *APIServers {
	t.Helper()
	if err := c.Rig.Lab.LoadAPIServer(t.Context()); err != nil {
		t.Fatalf("load the image of kube-apiserver: %v", err)
	}
	a := &APIServers{cluster: c, secret: secret}
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: apiServersName}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": apiServersName}, Ports: []corev1.ServicePort{{Name: "https", Port: apiServersPort}},
	}}
	for _, object := range []client.Object{service, &corev1.Secret{ObjectMeta: meta, Data: apiServersFiles(t)}} {
		if err := c.Rig.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, apiServersName, err)
		}
	}
	a.address = net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(apiServersPort))
	for i := range n {
		a.names = append(a.names, fmt.Sprintf("%s-%d", apiServersName, i))
		a.start(t, a.names[i])
	}
	return a
}

// Restart replaces the Pods, one after the other.
func (a *APIServers) Restart(t testing.TB) {
	t.Helper()
	for _, name := range a.names {
		var pod corev1.Pod
		if err := a.cluster.Rig.Client.Get(t.Context(), Key(a.cluster.Namespace, name), &pod); err != nil {
			t.Fatalf("get Pod %s: %v", name, err)
		}
		a.cluster.Delete(t, &corev1.Pod{}, name)
		Eventually(t, maxWait, "Pod "+name+" is gone", func(ctx context.Context) error {
			return a.cluster.Gone(ctx, &corev1.Pod{}, name, string(pod.UID))
		})
		a.start(t, name)
	}
}

// Client returns a client of all of them together.
func (a *APIServers) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	made, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://" + a.address, BearerToken: apiServersToken, Dial: a.cluster.Rig.Dial, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // the servers sign their own certificates
	})
	if err != nil {
		t.Fatalf("make a client of the kube-apiservers: %v", err)
	}
	return made
}

func (a *APIServers) start(t testing.TB, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.cluster.Namespace, Name: name, Labels: map[string]string{"app": apiServersName}},
		Spec:       a.podSpec(),
	}
	if err := a.cluster.Rig.Client.Create(t.Context(), pod); err != nil {
		t.Fatalf("create Pod %s: %v", name, err)
	}
	a.cluster.Rig.awaitContainer(t, pod)
}

func (a *APIServers) podSpec() corev1.PodSpec {
	const etcdDir, ownDir, certDir = "/etc/etcd/", "/etc/kube-apiserver/", "/var/run/kube-apiserver"
	grace := int64(4 * drainSeconds)
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace, EnableServiceLinks: new(bool), AutomountServiceAccountToken: new(bool),
		SecurityContext: unprivilegedPod(),
		Containers: []corev1.Container{{
			Name: apiServersName, Image: lab.APIServerImage, ImagePullPolicy: corev1.PullNever,
			Args: []string{
				fmt.Sprintf("--etcd-servers=https://%s.%s.svc:2379", manifests.ClientServiceName(a.cluster.Name), a.cluster.Namespace),
				"--etcd-cafile=" + etcdDir + "ca.crt", "--etcd-certfile=" + etcdDir + "tls.crt", "--etcd-keyfile=" + etcdDir + "tls.key",
				"--advertise-address=$(POD_IP)", "--secure-port=" + strconv.Itoa(apiServersPort), "--cert-dir=" + certDir,
				"--token-auth-file=" + ownDir + "tokens.csv", "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
				"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + ownDir + "key.pem",
				"--service-account-signing-key-file=" + ownDir + "key.pem", "--service-cluster-ip-range=10.97.0.0/16",
				"--endpoint-reconciler-type=none", fmt.Sprintf("--shutdown-delay-duration=%ds", drainSeconds),
			},
			Env: []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "etcd", MountPath: etcdDir, ReadOnly: true}, {Name: "own", MountPath: ownDir, ReadOnly: true}, {Name: "certificates", MountPath: certDir},
			},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Path: "/readyz", Port: intstr.FromInt32(apiServersPort), Scheme: corev1.URISchemeHTTPS,
				}},
				PeriodSeconds: 1, FailureThreshold: 10,
			},
			Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}},
			SecurityContext: unprivileged(),
		}},
		Volumes: []corev1.Volume{
			{Name: "etcd", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: a.secret}}},
			{Name: "own", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: apiServersName}}},
			{Name: "certificates", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

// apiServersFiles are the token of an administrator, and the key that signs the tokens of ServiceAccounts.
func apiServersFiles(t testing.TB) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tokens.csv": []byte(apiServersToken + ",administrator,administrator,system:masters\n"),
		"key.pem":    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
	}
}
