package harness

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// Plain is an etcd that runs without druid, as charts make one: a StatefulSet with volumes, a headless Service for its members and
// one Service for its clients.
type Plain struct {
	Namespace string
	Replicas  int

	rig *Rig
	ip  string
	// pods dials its members by their Pods' names.
	pods *Cluster
	// authority of its certificates, empty without TLS.
	authority pki.Pair
}

const (
	plainName     = "old"
	plainHeadless = "old-headless"
	plainPeerPort = 2380
)

// StartPlain starts one of a minor in a namespace, and waits until all of it serve.
func (r *Rig) StartPlain(t testing.TB, namespace, minor string, replicas int) *Plain {
	t.Helper()
	p := &Plain{Namespace: namespace, Replicas: replicas, rig: r, pods: r.Attach(namespace, plainName)}
	p.start(t, minor)
	return p
}

// scheme of the URLs of clients and peers.
func (p *Plain) scheme() string {
	if len(p.authority.Certificate) > 0 {
		return "https"
	}
	return "http"
}

func (p *Plain) start(t testing.TB, minor string) {
	t.Helper()
	r, namespace, replicas := p.rig, p.Namespace, p.Replicas
	image, err := r.Lab.EtcdImage(minor)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": plainName}
	ports := []corev1.ServicePort{{Name: "client", Port: config.ClientPort}, {Name: "peer", Port: plainPeerPort}}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	service := &corev1.Service{ObjectMeta: meta(plainName), Spec: corev1.ServiceSpec{Selector: labels, Ports: ports[:1]}}
	for _, object := range []client.Object{
		service,
		&corev1.Service{ObjectMeta: meta(plainHeadless), Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: labels, Ports: ports,
		}},
		p.statefulSet(meta(plainName), image),
	} {
		if err := r.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s/%s: %v", object, namespace, object.GetName(), err)
		}
	}
	p.ip = service.Spec.ClusterIP
	Eventually(t, 2*maxWait, "a plain etcd in "+namespace, func(ctx context.Context) error {
		var set appsv1.StatefulSet
		if err := r.Client.Get(ctx, Key(namespace, plainName), &set); err != nil {
			return err
		}
		if int(set.Status.ReadyReplicas) != replicas {
			return fmt.Errorf("%d of %d are ready", set.Status.ReadyReplicas, replicas)
		}
		return nil
	})
}

// host of the member in the headless Service.
func (p *Plain) host(name string) string {
	return fmt.Sprintf("%s.%s.%s.svc", name, plainHeadless, p.Namespace)
}

func (p *Plain) names() []string {
	names := make([]string, p.Replicas)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", plainName, i)
	}
	return names
}

func (p *Plain) statefulSet(meta metav1.ObjectMeta, image string) *appsv1.StatefulSet {
	var all []string
	for _, name := range p.names() {
		all = append(all, fmt.Sprintf("%s=%s://%s:%d", name, p.scheme(), p.host(name), plainPeerPort))
	}
	self := fmt.Sprintf("$(POD_NAME).%s.%s.svc", plainHeadless, p.Namespace)
	class, user := lab.LocalClass, int64(65532)
	container := corev1.Container{
		Name: "etcd", Image: image, ImagePullPolicy: corev1.PullNever,
		Command: []string{
			"etcd", "--name=$(POD_NAME)", "--data-dir=/data/etcd", "--listen-peer-urls=" + p.scheme() + "://[::]:2380",
			"--listen-client-urls=" + p.scheme() + "://[::]:2379",
			fmt.Sprintf("--initial-advertise-peer-urls=%s://%s:%d", p.scheme(), self, plainPeerPort),
			fmt.Sprintf("--advertise-client-urls=%s://%s:%d", p.scheme(), self, config.ClientPort),
			"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-state=new", "--initial-cluster-token=" + p.Namespace,
		},
		Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(config.ClientPort)}}, PeriodSeconds: 1,
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	replicas := int32(p.Replicas)
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: plainHeadless, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: meta.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{
			EnableServiceLinks: new(bool), AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{container},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: &user, RunAsGroup: &user, FSGroup: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}},
	}}
	if p.scheme() == "https" {
		p.secure(&set.Spec.Template.Spec)
	}
	return set
}

// Joins lets the EtcdCluster join it, of the version that it runs; removeExternalMembers says that its members may go.
func (p *Plain) Joins(t testing.TB, minor string, removeExternalMembers bool) Option {
	t.Helper()
	version := p.rig.EtcdVersion(t, minor)
	return func(c *v1alpha1.EtcdCluster) {
		join := &v1alpha1.JoinSpec{RemoveExternalMembers: removeExternalMembers}
		for _, name := range p.names() {
			join.Endpoints = append(join.Endpoints, v1alpha1.JoinEndpoint(fmt.Sprintf("%s://%s:%d", p.scheme(), p.host(name), config.ClientPort)))
		}
		if p.scheme() == "https" {
			p.trusts(t, c, join)
		}
		c.Spec.Version, c.Spec.Bootstrap = version, &v1alpha1.BootstrapSpec{Join: join}
	}
}

// Service is the URL of its client Service, and Etcd a client of that.
func (p *Plain) Service() string {
	return p.scheme() + "://" + net.JoinHostPort(p.ip, strconv.Itoa(config.ClientPort))
}

// Etcd makes a client that goes through its client Service.
func (p *Plain) Etcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return p.pods.EtcdAt(t, p.Service())
}

// AwaitAlone waits until its own members, and no others, are the group, all of them vote, and one of them leads.
func (p *Plain) AwaitAlone(t testing.TB) {
	t.Helper()
	etcd := p.pods.Etcd(t, p.names()...)
	Eventually(t, maxWait, "the members of the plain etcd alone", func(ctx context.Context) error {
		list, err := etcd.MemberList(ctx)
		if err != nil {
			return err
		}
		if len(list.Members) != p.Replicas {
			return fmt.Errorf("members are %v", list.Members)
		}
		status, err := etcd.Status(ctx, Endpoint(p.names()[0]))
		if err != nil {
			return err
		}
		leads := false
		for _, m := range list.Members {
			if m.IsLearner {
				return fmt.Errorf("%s is a learner", m.Name)
			}
			leads = leads || m.ID == status.Leader
		}
		if !leads {
			return fmt.Errorf("the leader is %x", status.Leader)
		}
		return nil
	})
}

// Delete deletes the StatefulSet.
func (p *Plain) Delete(t testing.TB) {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: plainName}}
	if err := p.rig.Client.Delete(t.Context(), set); err != nil {
		t.Fatalf("delete StatefulSet %s/%s: %v", p.Namespace, plainName, err)
	}
}
