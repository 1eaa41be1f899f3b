// Command provisioner creates the test rig's persistent volumes. It serves two
// provisioners:
//
//   - rig/local: a directory of one node, as a local volume with node affinity;
//   - rig/network: a directory that every node may mount, as a network disk.
//
// Where a class allows it, volumes grow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// dirAnnotation names the volume's directory on the machine that runs the rig.
const dirAnnotation = "rig/dir"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a user that may manage persistent volumes")
	local := flag.String("local-root", "", "directory with one directory per node, for class rig-local")
	network := flag.String("network-root", "", "directory for class rig-network")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *local, *network); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

// run serves both provisioners until ctx ends.
func run(ctx context.Context, kubeconfig, local, network string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %q: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client from kubeconfig %q: %w", kubeconfig, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	provisioners := map[string]controller.Provisioner{
		"rig/local":   localProvisioner{root: local},
		"rig/network": networkProvisioner{root: network},
	}
	for name, p := range provisioners {
		pc := controller.NewProvisionController(ctx, client, name, p, controller.LeaderElection(false))
		g.Go(func() error { pc.Run(ctx); return nil })
	}
	g.Go(func() error { return runResizer(ctx, client, slices.Collect(maps.Keys(provisioners))) })
	return g.Wait()
}

type localProvisioner struct{ root string }

func (p localProvisioner) Provision(_ context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	if o.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, errors.New("no node is selected: class rig-local needs volumeBindingMode WaitForFirstConsumer")
	}
	dir := filepath.Join(p.root, o.SelectedNodeName, "volumes", o.PVName)
	pv := volume(o, dir)
	pv.Spec.Local = &v1.LocalVolumeSource{Path: dir}
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{
				Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{o.SelectedNodeName},
			}},
		}},
	}}
	// Like a fresh disk it is root's, and the Pod's fsGroup opens it.
	return pv, controller.ProvisioningFinished, makeDir(dir, 0o755)
}

func (localProvisioner) Delete(_ context.Context, pv *v1.PersistentVolume) error {
	return os.RemoveAll(pv.Annotations[dirAnnotation])
}

type networkProvisioner struct{ root string }

func (p networkProvisioner) Provision(_ context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	dir := filepath.Join(p.root, o.PVName)
	pv := volume(o, dir)
	kind := v1.HostPathDirectory
	pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: dir, Type: &kind}
	// hostPath volumes ignore fsGroup: it is open to all, as an NFS export often is.
	return pv, controller.ProvisioningFinished, makeDir(dir, 0o777)
}

func (networkProvisioner) Delete(_ context.Context, pv *v1.PersistentVolume) error {
	return os.RemoveAll(pv.Annotations[dirAnnotation])
}

// volume is what both kinds of persistent volume have in common.
func volume(o controller.ProvisionOptions, dir string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName, Annotations: map[string]string{dirAnnotation: dir}},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: o.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
		},
	}
}

// makeDir makes a volume's directory with just this mode, whatever the umask.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("make the volume's directory: %w", err)
	}
	return os.Chmod(dir, mode)
}
