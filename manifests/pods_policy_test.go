package manifests

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// madePods are Pods of each kind that druid makes, as if their clusters were in the namespace.
func madePods(t testing.TB, namespace string) map[string]*corev1.Pod {
	t.Helper()
	memory, disk, unsafe, node, restored, passwords := plain(), plain(), secured(), plain(), plain(), secured()
	inMemory(memory)
	onDisk(disk)
	SetTLSStage(unsafe, PlanePeer, v1alpha1.TLSStageBoth)
	directory := v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: "/srv/backups"}}
	node.Spec.Backup = &v1alpha1.BackupSpec{Store: directory, Full: v1alpha1.FullBackup{Schedule: "@daily"}}
	restored.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{Store: &directory}}}
	passwords.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: "passwords"}}
	joining := plain()
	joining.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{
		Endpoints: []v1alpha1.JoinEndpoint{"https://etcd-0.old:2379"}, TLS: &v1alpha1.JoinTLS{SecretRef: v1alpha1.SecretRef{Name: "old"}},
	}}
	all := map[string]*corev1.Pod{}
	for name, cluster := range map[string]*v1alpha1.EtcdCluster{
		"plain": plain(), "full": full(), "memory": memory, "disk": disk, "tls": secured(), "plain text too": unsafe, "longest name": longest(),
		"directory": node, "restored": restored, "passwords": passwords, "joining": joining,
	} {
		cluster.Namespace, cluster.Spec.RuntimeClassName, cluster.Spec.PriorityClassName = namespace, nil, ""
		pod, err := Pod(cluster, member, options())
		if err != nil {
			t.Fatal(err)
		}
		all["a member: "+name] = pod
		for verb, run := range map[string]SnapshotRun{
			"saves":   {Record: leases.Record{ClusterID: 7, Lineage: "00000001-ab"}, Within: SnapshotTimeout},
			"deletes": {Drop: "key", Within: SnapshotTimeout},
		} {
			snapshot := ownStore(cluster)
			if cluster == node {
				snapshot.Spec.Store = &directory
			}
			pod, err := SnapshotPod(cluster, snapshot, run, options())
			if err != nil {
				t.Fatal(err)
			}
			all["a Pod that "+verb+": "+name] = pod
		}
	}
	return all
}

// podAttempts are what an owner of druid's token could do with a Pod of it.
var podAttempts = map[string]func(*corev1.Pod){
	"has no owner":                       func(p *corev1.Pod) { p.OwnerReferences = nil },
	"has another owner":                  func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Deployment" },
	"has an owner of another group":      func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" },
	"has an owner that controls not":     func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
	"has an owner of an unknown version": func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "etcd.druid.dev/v9" },
	"has a second owner":                 func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, otherOwner) },
	"has a finalizer":                    func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} },
	"runs on after its deletion":         func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(61)) },
	"has another EtcdCluster as owner":   func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "EtcdCluster", "other" },
	"has not the label of druid":         func(p *corev1.Pod) { delete(p.Labels, labelManagedBy) },
	"belongs to no cluster":              func(p *corev1.Pod) { delete(p.Labels, leases.LabelCluster) },
	"uses another ServiceAccount":        func(p *corev1.Pod) { p.Spec.ServiceAccountName = "admin" },
	"uses the default ServiceAccount":    func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" },
	"mounts its token everywhere":        func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil },
	"uses the network of the node":       func(p *corev1.Pod) { p.Spec.HostNetwork = true },
	"sees the processes of the node":     func(p *corev1.Pod) { p.Spec.HostPID = true },
	"uses the memory of the node":        func(p *corev1.Pod) { p.Spec.HostIPC = true },
	"chooses its node":                   func(p *corev1.Pod) { p.Spec.NodeName = "control-plane" },
	"runs as root":                       func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = new(int64(0)) },
	"may run as root":                    func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsNonRoot = nil },
	"runs without seccomp":               func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = nil },
	"changes a kernel": func(p *corev1.Pod) {
		p.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}
	},
	"has a user of Windows":   func(p *corev1.Pod) { p.Spec.SecurityContext.WindowsOptions = windowsUser },
	"has a group of the node": func(p *corev1.Pod) { p.Spec.SecurityContext.SupplementalGroups = []int64{6} },
	"has no security context": func(p *corev1.Pod) { p.Spec.SecurityContext = nil },
	"has a container without seccomp": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	},
	"has a container with a profile of the node for seccomp": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("any.json")}
	},
	"runs with a profile of the node for seccomp": func(p *corev1.Pod) {
		p.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("any.json")}
	},
	"has a container of root":              func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.RunAsUser = new(int64(0)) },
	"has a container that may run as root": func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.RunAsNonRoot = new(false) },
	"has a container of a Windows user":    func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.WindowsOptions = windowsUser },
	"has a privileged init container": func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers,
			corev1.Container{Name: "more", Image: "more", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}})
	},
	"has a privileged container": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	},
	"has a capability": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
	},
	"has a port of the node": func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	},
	"copies a Secret into its status": func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/secrets/token" },
	"has a Secret in a variable": func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "any"}, Key: "a"},
		}}}
	},
	"has a Secret in its variables": func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "any"}}}}
	},
	"mounts the root of the node": mounting("root", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: new(corev1.HostPathDirectory)}}),
	"mounts any file of the node": mounting("backup-store", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/shadow"}}),
	"mounts a socket of the node": mounting("backup-store",
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/containerd.sock", Type: new(corev1.HostPathSocket)}}),
	"mounts the root of the node by the name of a store": mountingOfHost("/"),
	"mounts the root of the node by another path":        mountingOfHost("//./."),
	"mounts a directory by a path of no root":            mountingOfHost("srv"),
	"mounts the sockets of the node":                     mountingOfHost("/run/containerd"),
	"mounts the sockets of the node by another path":     mountingOfHost("/./var//./run/"),
	"mounts the parent of the sockets of the node":       mountingOfHost("/var/."),
	"mounts the files of the kubelet":                    mountingOfHost("/var/lib/kubelet"),
	"mounts the settings of the node":                    mountingOfHost("//etc"),
	"mounts a directory as another user": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.SecurityContext.RunAsUser = new(int64(1000))
	},
	"mounts a directory as the group of root": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.SecurityContext.RunAsGroup = new(int64(0))
	},
	"mounts a directory with a group of the node": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.SecurityContext.FSGroup = new(int64(42))
	},
	"mounts a directory into a container of another user": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.Containers[0].SecurityContext.RunAsUser = new(int64(1000))
	},
	"mounts a directory into a container of another group": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.Containers[0].SecurityContext.RunAsGroup = new(int64(0))
	},
	"mounts a directory where a program can get the rights of root": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
	},
	"mounts a directory into an init container that can get them": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		mount := p.Spec.Containers[0].VolumeMounts[len(p.Spec.Containers[0].VolumeMounts)-1]
		p.Spec.Containers[0].VolumeMounts = p.Spec.Containers[0].VolumeMounts[:len(p.Spec.Containers[0].VolumeMounts)-1]
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "more", Image: "more", VolumeMounts: []corev1.VolumeMount{mount},
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}})
	},
	"mounts a directory next to a program that can get them": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more", Image: "more",
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}})
	},
	"mounts a directory next to an init container with capabilities": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "more", Image: "more",
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}})
	},
	"mounts a directory next to a program of another user": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		more := hardened
		more.SecurityContext = more.SecurityContext.DeepCopy()
		more.SecurityContext.RunAsUser = new(int64(1000))
		p.Spec.Containers = append(p.Spec.Containers, more)
	},
	"mounts a directory where containers see each other's processes": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.ShareProcessNamespace = new(true)
	},
	"mounts a directory where a program has capabilities": func(p *corev1.Pod) {
		mountingOfHost("/srv")(p)
		p.Spec.Containers[0].SecurityContext.Capabilities.Drop = []corev1.Capability{"KILL"}
	},
	"runs without AppArmor": func(p *corev1.Pod) {
		p.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	},
	"has a container without AppArmor": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	},
	"runs with a profile of the node for AppArmor": func(p *corev1.Pod) {
		p.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("any")}
	},
	"has a container with a profile of the node for AppArmor": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("any")}
	},
	"has a container with a profile of the node for AppArmor by an annotation": func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+p.Spec.Containers[0].Name,
			corev1.DeprecatedAppArmorBetaProfileNamePrefix+"any")
	},
	"has a container without AppArmor by an annotation": func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+p.Spec.Containers[0].Name,
			corev1.DeprecatedAppArmorBetaProfileNameUnconfined)
	},
	"has a type of SELinux":                selinux(corev1.SELinuxOptions{Type: "spc_t"}),
	"has a user of SELinux":                selinux(corev1.SELinuxOptions{User: "system_u"}),
	"has a role of SELinux":                selinux(corev1.SELinuxOptions{Role: "system_r"}),
	"has the level of all Pods in SELinux": selinux(corev1.SELinuxOptions{Level: "s0-s0:c0.c1023"}),
	"has a container of a level in SELinux": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
	},
	"mounts a volume of a driver": mounting("driver", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "example.com"}}),
	"mounts a share":              mounting("share", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}),
}

var windowsUser = &corev1.WindowsSecurityContextOptions{RunAsUserName: new("ContainerAdministrator")}

func mounting(name string, source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := range p.Spec.Volumes {
			if p.Spec.Volumes[i].Name == name {
				p.Spec.Volumes[i].VolumeSource = source
				return
			}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
}

// mountingOfHost mounts a directory of the node into the first container, as that of a directory store.
func mountingOfHost(path string) func(*corev1.Pod) {
	add := mounting("restore-store", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)}})
	return func(p *corev1.Pod) {
		add(p)
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "restore-store", MountPath: "/node"})
	}
}

func selinux(o corev1.SELinuxOptions) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SecurityContext.SELinuxOptions = &o }
}

// hardened is a container that can get no more rights.
var hardened = corev1.Container{Name: "more", Image: "more", SecurityContext: &corev1.SecurityContext{
	AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
}}

// snapshotAttempts are more for the Pod of an EtcdSnapshot.
var snapshotAttempts = map[string]func(*corev1.Pod){
	"has the name of another EtcdSnapshot": func(p *corev1.Pod) { p.Name = "snapshot-other" },
	"has a token for Kubernetes":           withToken(""),
	"has a token for another audience":     withToken("https://kubernetes.default.svc"),
}

// withToken mounts a token of the ServiceAccount.
func withToken(audience string) func(*corev1.Pod) {
	return mounting("identity", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token"}},
	}}})
}

// webhookAdditions are what a webhook adds to a Pod of druid: a container that runs as the user of the Pod, with no privileges of its own. On
// a Pod with a directory of the node, the container can also get no privileges.
var webhookAdditions = map[string]func(*corev1.Pod){
	"a sidecar": func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more", Image: "more"})
	},
	"an init container": func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "more", Image: "more"})
	},
	"a level of SELinux": selinux(corev1.SELinuxOptions{Level: "s0:c26,c5"}),
	"a profile of AppArmor": func(p *corev1.Pod) {
		p.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	},
	"an identity in AWS": withToken("sts.amazonaws.com"),
}

// onNode are those of them on a Pod with a directory of the node.
var onNode = map[string]func(*corev1.Pod){
	"a sidecar":          func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, hardened) },
	"an init container":  func(p *corev1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, hardened) },
	"an identity in AWS": withToken("sts.amazonaws.com"),
}

// A stolen token of druid makes the Pods of members and of EtcdSnapshots, and no other.
func TestATokenOfDruidMakesOnlyItsPods(t *testing.T) {
	in := install(t, env.APIServer(t))
	namespace := env.Namespace(t, in.config) // no level of Pod Security refuses a Pod here
	in.allowHostPath(t, namespace)
	made := madePods(t, namespace)
	create := func(pod *corev1.Pod) error { return in.druid.Create(t.Context(), pod.DeepCopy(), client.DryRunAll) }
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}
	inForce(t, "druid-pods", func() error { return create(foreign) })
	for name, pod := range made {
		if err := create(pod); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range []string{"a member: full", "a Pod that saves: full"} {
		attempts := maps.Clone(podAttempts)
		if kind == "a Pod that saves: full" {
			maps.Copy(attempts, snapshotAttempts)
		}
		for name, change := range attempts {
			pod := made[kind].DeepCopy()
			change(pod)
			if err := create(pod); !refusedBy("druid-pods", err) {
				t.Errorf("%s that %s: %v, want a refusal by the policy", kind, name, err)
			}
		}
	}
	for kind, additions := range map[string]map[string]func(*corev1.Pod){
		"a member: full": webhookAdditions, "a Pod that saves: full": webhookAdditions, "a member: directory": onNode, "a member: restored": onNode,
	} {
		for name, add := range additions {
			pod := made[kind].DeepCopy()
			add(pod)
			if err := create(pod); err != nil {
				t.Errorf("%s, to which a webhook added %s: %v", kind, name, err)
			}
		}
	}
	in.changesPods(t, foreign, false)
	in.changesPods(t, made["a member: plain"], true)
	in.changesPods(t, made["a Pod that saves: plain"], true)
}

// allowHostPath lets druid mount directories of the node in the namespace.
func (in *installed) allowHostPath(t *testing.T, namespace string) {
	t.Helper()
	label := corev1ac.Namespace(namespace).WithLabels(map[string]string{v1alpha1.LabelAllowHostPath: "true"})
	if err := in.admin.Apply(t.Context(), label, client.FieldOwner("host-path")); err != nil {
		t.Fatalf("label the namespace: %v", err)
	}
}

// changesPods checks what druid may do with a Pod that exists, and that a user holds by a finalizer.
func (in *installed) changesPods(t *testing.T, pod *corev1.Pod, own bool) {
	t.Helper()
	pod.Finalizers = []string{"example.com/hold"}
	if err := in.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	image := fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":"other"}]}}`, pod.Spec.Containers[0].Name)
	owners := `{"metadata":{"ownerReferences":[{"$patch":"replace"}]}}`
	if !own {
		owners = fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"EtcdCluster","name":"demo","uid":%q,"controller":true}]}}`,
			v1alpha1.GroupVersion, in.cluster.UID)
	}
	for name, r := range map[string]right{
		"change its image":  {in.patch(t, pod, types.StrategicMergePatchType, image), own},
		"label it":          {in.patch(t, pod, types.StrategicMergePatchType, `{"metadata":{"labels":{"etcd.druid.dev/serving":"true"}}}`), own},
		"change its owners": {in.patch(t, pod, types.StrategicMergePatchType, owners), false},
		"add a finalizer":   {in.patch(t, pod, types.StrategicMergePatchType, `{"metadata":{"finalizers":["example.com/more"]}}`), false},
		"delete it":         {func() error { return in.druid.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll) }, own},
	} {
		if err := r.do(); r.want && err != nil || !r.want && !refusedBy("druid-pods", err) {
			t.Errorf("%s of Pod %s: %v, want it allowed: %t", name, pod.Name, err, r.want)
		}
	}
}

// refusedBy reports whether the policy refused a request.
func refusedBy(policy string, err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}

// inForce waits until the API server, which reads policies from a cache, refuses what the policy refuses.
func inForce(t testing.TB, policy string, try func() error) {
	t.Helper()
	await(t, policy+" is not in force", func() (bool, error) {
		err := try()
		return refusedBy(policy, err), err
	})
}
