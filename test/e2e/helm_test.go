package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/gitops"
	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/rig/lab"
)

const (
	// chartOfDruid and chartOfCluster are the charts as they are in the repository.
	chartOfDruid   = repo + "/charts/druid"
	chartOfCluster = repo + "/charts/etcd-cluster"
	// helmWaits is the time limit of a Helm that waits for a cluster, as helmTimeout says it.
	helmWaits   = formWithin
	helmTimeout = "4m"
)

// helm is a real Helm with files of its own, for one namespace of the rig.
type helm struct {
	name, path, namespace string
	env                   []string
}

func newHelm(t *testing.T, name, namespace string) helm {
	t.Helper()
	built, err := binaries.Programs(t.Context(), t.Logf, name)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return helm{name, built[name], namespace, []string{
		"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + rig.Lab.KubeconfigPath(), "PATH=" + os.Getenv("PATH"),
	}}
}

// do runs Helm until it ends, and returns what it printed.
func (h helm) do(t *testing.T, args ...string) (string, error) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), commandWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.path, append(args, "--namespace", h.namespace)...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	t.Logf("%s %s: ended after %s: %v", h.name, strings.Join(args, " "), time.Since(begun).Round(100*time.Millisecond), err)
	if err != nil {
		err = fmt.Errorf("run %s %s: %w\n%s", h.name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (h helm) must(t *testing.T, args ...string) {
	t.Helper()
	if _, err := h.do(t, args...); err != nil {
		t.Fatal(err)
	}
}

// Helm 3 takes druid over from the manifests, and Helm 4 installs it where Helm 3 uninstalled it. Each of them upgrades druid, reverts
// that, and uninstalls it. The agents follow, and no etcd ends.
func TestHelmChangesDruidUnderAWriter(t *testing.T) {
	stories.Begin(t)
	c, w, view := beforeAnUpgrade(t)
	t.Cleanup(func() { rig.Reinstall(t) })
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := runningEtcds(t, c, view)
	for _, name := range []string{"helm-3", "helm-4"} {
		if !t.Run(name, func(t *testing.T) {
			h := newHelm(t, name, harness.DruidNamespace)
			w.Gap()
			h.must(t, append([]string{"install", "druid", chartOfDruid, "--take-ownership", "--wait", "--timeout", helmTimeout}, valuesOfTheRig(t)...)...)
			rig.DruidLeader(t)
			view = stableAs(t, c, view)
			agentsFollow(t, c, w, view, before, nextDruid, func() {
				h.must(t, "upgrade", "druid", chartOfDruid, "--reset-then-reuse-values", "--set", "image.tag="+tagOf(nextDruid), "--wait", "--timeout", helmTimeout)
			})
			agentsFollow(t, c, w, view, before, lab.DruidImage, func() { h.must(t, "rollback", "druid", "--wait", "--timeout", helmTimeout) })
			h.must(t, "uninstall", "druid", "--wait", "--timeout", helmTimeout)
			leftByHelm(t, c, cluster)
			w.AwaitWrites(t, 100, time.Minute)
			servedOn(t, w)
			if diff := cmp.Diff(before, runningEtcds(t, c, view)); diff != "" {
				t.Errorf("Helm touched an etcd, its container or its Pod (-before +after):\n%s", diff)
			}
		}) {
			break
		}
	}
	w.Stop(t, c.Etcd(t))
}

// tagOf is the tag of an image of druid.
func tagOf(image string) string { return image[strings.LastIndex(image, ":")+1:] }

// valuesOfTheRig are the arguments of Helm for the image and the intervals of the rig.
func valuesOfTheRig(t *testing.T) []string {
	t.Helper()
	args := []string{"--set", "image.repository=" + strings.TrimSuffix(lab.DruidImage, ":"+tagOf(lab.DruidImage)), "--set", "image.tag=" + tagOf(lab.DruidImage)}
	for _, flag := range rig.Flags(t) {
		args = append(args, "--set-string", "flags."+strings.TrimPrefix(flag, "--"))
	}
	return args
}

// leftByHelm fails the test unless druid is gone, and its CustomResourceDefinitions and the EtcdCluster are there.
func leftByHelm(t *testing.T, c *harness.Cluster, before *v1alpha1.EtcdCluster) {
	t.Helper()
	if err := rig.Client.Get(t.Context(), harness.Key(harness.DruidNamespace, "druid"), &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment of druid is there after Helm uninstalled it: %v", err)
	}
	for _, plural := range []string{"etcdclusters", "etcdsnapshots"} {
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := rig.Client.Get(t.Context(), harness.Key("", plural+"."+v1alpha1.GroupVersion.Group), definition); err != nil {
			t.Fatal(err)
		}
		if definition.GetDeletionTimestamp() != nil {
			harness.Unsafe(t, "Helm deletes the definition of %s", plural)
		}
	}
	after, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.UID != before.UID || after.Generation != before.Generation || after.DeletionTimestamp != nil {
		harness.Unsafe(t, "the EtcdCluster changed (-before +after):\n%s", cmp.Diff(before, after))
	}
}

// Helm 4 waits until kstatus of the EtcdCluster is Current, and gives up when it is Failed. Helm 3 knows only the kinds of Kubernetes, and does
// not wait.
func TestHelmWaitsUntilTheClusterIsReady(t *testing.T) {
	stories.Begin(t)
	c := rig.Expect(t, rig.MakeNamespace(t), demo)
	h := newHelm(t, "helm-4", c.Namespace)
	values := filepath.Join(t.TempDir(), "values.yaml")
	text := fmt.Sprintf("spec:\n  replicas: 3\n  storage:\n    size: 1Gi\n    storageClassName: %s\n", lab.LocalClass)
	if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.must(t, "install", demo, chartOfCluster, "--values", values, "--wait", "--timeout", helmTimeout)
	asHelmWaited(t, c)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)

	t.Run("an upgrade ends when the last Pod is replaced", func(t *testing.T) {
		w.Gap()
		h.must(t, "upgrade", demo, chartOfCluster, "--values", values, "--set", "spec.resources.requests.cpu=101m", "--wait", "--timeout", helmTimeout)
		asHelmWaited(t, c)
		for member := range view.Members {
			pod, err := c.Pod(t.Context(), member)
			if err != nil {
				t.Fatal(err)
			}
			if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "101m" {
				t.Errorf("Helm ended, and Pod %s requests %s", member, got)
			}
		}
		view = stableAs(t, c, view)
		servedOn(t, w)
	})
	t.Run("an upgrade to an image that does not exist fails before its time is over, and is rolled back", func(t *testing.T) {
		w.Gap()
		begun := time.Now()
		said, err := h.do(t, "upgrade", demo, chartOfCluster, "--values", values, "--set", "spec.resources.requests.cpu=101m",
			"--set", "spec.image=registry.invalid/etcd", "--wait", "--timeout", helmTimeout)
		if err == nil || !strings.Contains(said, "status: Failed") || !strings.Contains(said, "registry.invalid/etcd") {
			t.Errorf("Helm ended with %v, want an error with the status Failed and the image\n%s", err, said)
		}
		if took := time.Since(begun); took >= helmWaits {
			t.Errorf("Helm waited %s for what cannot succeed, as long as it may wait at all", took)
		}
		h.must(t, "rollback", demo, "--wait", "--timeout", helmTimeout)
		asHelmWaited(t, c)
		view = stableAs(t, c, view)
		servedOn(t, w)
	})
	etcdsOutliveTheRelease(t, c, w, view, values, h)
	w.Stop(t, c.Etcd(t))
}

// asHelmWaited fails the test unless the cluster is ready now.
func asHelmWaited(t *testing.T, c *harness.Cluster) {
	t.Helper()
	object := untyped(t, c)
	ready, _, err := unstructured.NestedInt64(object.Object, "status", "readyReplicas")
	if state, message := gitops.Kstatus(t, object); err != nil || state != "Current" || ready != 3 {
		t.Errorf("Helm ended, and the cluster is %s with %d ready members: %s, %v", state, ready, message, err)
	}
}

// untyped is the EtcdCluster as tools read it.
func untyped(t *testing.T, c *harness.Cluster) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("EtcdCluster"))
	if err := rig.Client.Get(t.Context(), harness.Key(c.Namespace, c.Name), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// etcdsOutliveTheRelease uninstalls the release with Helm 4, and manages the same EtcdCluster with Helm 3. No etcd notices either.
func etcdsOutliveTheRelease(t *testing.T, c *harness.Cluster, w *harness.Writer, view harness.View, values string, h helm) {
	t.Helper()
	before := runningEtcds(t, c, view)
	w.Gap()
	h.must(t, "uninstall", demo, "--wait", "--timeout", helmTimeout)
	old := newHelm(t, "helm-3", c.Namespace)
	old.must(t, "install", demo, chartOfCluster, "--values", values, "--set", "spec.resources.requests.cpu=101m", "--wait", "--timeout", helmTimeout)
	old.must(t, "upgrade", demo, chartOfCluster, "--values", values,
		"--set", "spec.resources.requests.cpu=101m", "--set", "labels.team=a", "--wait", "--timeout", helmTimeout)
	old.must(t, "rollback", demo, "--wait", "--timeout", helmTimeout)
	reconciled(t, c, scaleWithin)
	stableAs(t, c, view)
	servedOn(t, w)
	if diff := cmp.Diff(before, runningEtcds(t, c, view)); diff != "" {
		t.Errorf("Helm touched an etcd, its container or its Pod (-before +after):\n%s", diff)
	}
	old.must(t, "uninstall", demo, "--wait", "--timeout", helmTimeout)
	cluster, err := c.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cluster.DeletionTimestamp != nil {
		harness.Unsafe(t, "Helm deletes the EtcdCluster")
	}
	w.AwaitWrites(t, 50, time.Minute)
}
