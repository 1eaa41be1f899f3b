package certmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// module is what the program is built from, and what has the CustomResourceDefinitions.
const module = "github.com/cert-manager/cert-manager"

// installTimeout is for an API server that begins to serve a kind.
const installTimeout = time.Minute

// Definitions returns the CustomResourceDefinitions of the pinned cert-manager.
func Definitions(tb testing.TB) []*unstructured.Unstructured {
	tb.Helper()
	repo, err := binaries.RepoDir()
	if err != nil {
		tb.Fatal(err)
	}
	dir := filepath.Join(repo, "tools", "certmanager")
	cmd := exec.CommandContext(tb.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "PWD="+dir)
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("download %s: %v\n%s", module, err, out)
	}
	var download struct{ Dir string }
	if err := json.Unmarshal(out, &download); err != nil {
		tb.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, name := range []string{"certificates", "certificaterequests", "issuers", "clusterissuers"} {
		raw, err := os.ReadFile(filepath.Join(download.Dir, "deploy", "crds", "cert-manager.io_"+name+".yaml"))
		if err != nil {
			tb.Fatal(err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &definition.Object); err != nil {
			tb.Fatal(err)
		}
		all = append(all, definition)
	}
	return all
}

// Install creates the CustomResourceDefinitions, if they are not there, and waits until the API server serves them.
func Install(tb testing.TB, c client.Client) {
	tb.Helper()
	for _, definition := range Definitions(tb) {
		if err := client.IgnoreAlreadyExists(c.Create(tb.Context(), definition)); err != nil {
			tb.Fatal(err)
		}
	}
	deadline := time.Now().Add(installTimeout)
	for _, kind := range []string{"Certificate", "CertificateRequest", "Issuer"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(manifests.CertificateKind.GroupVersion().WithKind(kind + "List"))
		for {
			err := c.List(tb.Context(), list)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				tb.Fatalf("the API server does not serve %s: %v", kind, err)
			}
			<-time.After(100 * time.Millisecond)
		}
	}
}

// Start runs cert-manager until the test ends, or the returned function is called. kubeconfig is a file of an administrator.
func Start(tb testing.TB, kubeconfig string) (stop func()) {
	tb.Helper()
	built, err := binaries.Programs(tb.Context(), tb.Logf, "certmanager")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	cmd := exec.CommandContext(ctx, built["certmanager"], "-kubeconfig", kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = tb.Output(), tb.Output()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	var waiting errgroup.Group
	waiting.Go(func() error {
		err := cmd.Wait()
		if ctx.Err() == nil {
			return fmt.Errorf("cert-manager ended by itself: %w", err)
		}
		return nil
	})
	stop = sync.OnceFunc(func() {
		cancel()
		if err := waiting.Wait(); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// MakeIssuer makes an Issuer in a namespace with a certificate authority of its own, or replaces that authority. It returns the
// authority.
func MakeIssuer(tb testing.TB, c client.Client, namespace, name string) pki.Pair {
	tb.Helper()
	pair, err := pki.NewAuthority(name, time.Now(), 24*time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	makeIssuer(tb, c, namespace, name, pair)
	return pair
}

func makeIssuer(tb testing.TB, c client.Client, namespace, name string, pair pki.Pair) {
	tb.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-authority"}, Type: corev1.SecretTypeTLS, Data: manifests.PairData(pair),
	}
	issuer := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"ca": map[string]any{"secretName": secret.Name}},
	}}
	issuer.SetGroupVersionKind(manifests.CertificateKind.GroupVersion().WithKind("Issuer"))
	err := c.Create(tb.Context(), secret.DeepCopy())
	if err != nil && client.IgnoreAlreadyExists(err) == nil {
		err = c.Update(tb.Context(), secret)
	}
	if err := errors.Join(err, client.IgnoreAlreadyExists(c.Create(tb.Context(), issuer))); err != nil {
		tb.Fatal(err)
	}
}
