package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// planted are secrets in places where only a mistake puts them. No report may have one.
var planted = map[string]string{
	"the variable of etcd": "planted-in-the-environment", "the annotation of the EtcdCluster": "planted-in-an-annotation",
}

// withPlantedSecrets puts the secrets of planted into a cluster.
func withPlantedSecrets(c *v1alpha1.EtcdCluster) {
	c.Annotations = map[string]string{"example.com/note": planted["the annotation of the EtcdCluster"]}
	c.Spec.Env = []v1alpha1.EnvVar{{Name: "PROXY", Value: planted["the variable of etcd"]}}
}

// report returns the texts of a report by their names, without the name of the report before them.
func (p pluginOf) report(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	if stdout, stderr, code := p.run(t.Context(), "", "report", p.Name, "--output", file); code != 0 {
		t.Fatalf("report: exit code %d, %s%s", code, stdout, stderr)
	}
	found, err := unpacked(file)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// reportsWithoutSecret writes a report of a cluster with TLS and a bucket, and searches it for every secret.
func (p pluginOf) reportsWithoutSecret(t *testing.T, view harness.View) {
	t.Helper()
	found := p.report(t)
	namespace, leader := p.Namespace+"/", view.Leader()
	for _, name := range []string{
		p.Name + "/status.txt", p.Name + "/why.txt", "etcdclusters.yaml", "pods.yaml", "leases.yaml", "configmaps.yaml", "events.yaml",
		"logs/" + leader + "/etcd.log", "logs/" + leader + "/agent.log",
	} {
		if found[namespace+name] == "" {
			t.Errorf("the report does not have %s", namespace+name)
		}
	}
	p.NoSecretIn(t, found, planted, leader, "s3/secretAccessKey", manifests.ConnectionName(p.Name)+"/tls.key")
}

// unpacked returns the texts in a report.
func unpacked(file string) (found map[string]string, err error) {
	packed, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, packed.Close()) }()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	found = map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the report: %w", err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return nil, fmt.Errorf("read %s of the report: %w", header.Name, err)
		}
		_, name, _ := strings.Cut(path.Clean(header.Name), "/")
		found[name] = string(text)
	}
}
