package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

const (
	unknownMemberLabel   = "e2e.druid.dev/unknown-object"
	unknownMemberService = "unknown-objects"
	unknownMemberData    = "/var/lib/etcd"
	unknownMemberUser    = int64(65532) // any that is not root
)

// RunUnknownMember adds a voter to the cluster that is not druid's, and runs its etcd in a Pod without agent and Lease.
func (c *Cluster) RunUnknownMember(t testing.TB, etcd *clientv3.Client, name string) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: unknownMemberService}}
	service.Spec = corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: map[string]string{unknownMemberLabel: "yes"},
	}
	if err := c.Rig.Client.Get(t.Context(), Key(c.Namespace, unknownMemberService), service); err != nil {
		if err := c.Rig.Client.Create(t.Context(), service); err != nil {
			t.Fatalf("create the Service of unknown objects: %v", err)
		}
	}
	peerURL := fmt.Sprintf("http://%s.%s.%s.svc:2380", name, unknownMemberService, c.Namespace)
	var members []*etcdserverpb.Member
	Eventually(t, maxWait, "member add of "+name, func(ctx context.Context) (err error) {
		members, err = addVoter(ctx, etcd, peerURL)
		return err
	})
	pod := c.unknownMemberPod(t, name, peerURL, initialCluster(members, name, peerURL))
	if err := c.Rig.Client.Create(t.Context(), pod); err != nil {
		t.Fatalf("create Pod %s: %v", name, err)
	}
	Eventually(t, maxWait, name+" runs in step with the leader", func(ctx context.Context) error {
		status, err := etcd.Status(ctx, Endpoint(name))
		if err == nil && status.Leader == 0 {
			return fmt.Errorf("it sees no leader")
		}
		return err
	})
}

// addVoter adds a member and returns the list with it. An add whose answer was lost is found done by the next one.
func addVoter(ctx context.Context, etcd *clientv3.Client, peerURL string) ([]*etcdserverpb.Member, error) {
	added, err := etcd.MemberAdd(ctx, []string{peerURL})
	if err == nil {
		return added.Members, nil
	}
	if !errors.Is(err, rpctypes.ErrPeerURLExist) {
		return nil, err
	}
	list, err := etcd.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	return list.Members, nil
}

func initialCluster(members []*etcdserverpb.Member, name, peerURL string) string {
	var parts []string
	for _, m := range members {
		for _, url := range m.PeerURLs {
			member := m.Name
			if url == peerURL {
				member = name
			}
			parts = append(parts, member+"="+url)
		}
	}
	return strings.Join(parts, ",")
}

func (c *Cluster) unknownMemberPod(t testing.TB, name, peerURL, initialCluster string) *corev1.Pod {
	t.Helper()
	user, yes, no := unknownMemberUser, true, false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: map[string]string{unknownMemberLabel: "yes"}},
		Spec: corev1.PodSpec{
			Hostname: name, Subdomain: unknownMemberService, AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, FSGroup: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: ContainerEtcd, Image: c.etcdImage(t), Command: []string{
					"/usr/local/bin/etcd", "--name=" + name, "--data-dir=" + unknownMemberData + "/data",
					"--listen-peer-urls=http://[::]:2380", "--initial-advertise-peer-urls=" + peerURL,
					"--listen-client-urls=http://[::]:2379", "--advertise-client-urls=" + strings.Replace(peerURL, ":2380", ":2379", 1),
					"--initial-cluster=" + initialCluster, "--initial-cluster-state=existing",
					// Unequal limits split the member list: it must be the one of the raft group.
					fmt.Sprintf("--max-learners=%d", leases.MaxLearners),
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: unknownMemberData}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

// etcdImage is the image that the cluster's own members run.
func (c *Cluster) etcdImage(t testing.TB) string {
	t.Helper()
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatalf("EtcdCluster %s: %v", c, err)
	}
	return cluster.Spec.Image + ":v" + cluster.Spec.Version
}
