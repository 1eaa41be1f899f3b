package connect

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/member"
	"github.com/etcd-druid/druid/test/pages"
)

// docs is the folder of all pages, from that of this package.
const docs = "../../docs"

// sample is the EtcdCluster of the pages.
const sample = docs + "/samples/tls.yaml"

// secretName is the Secret of its client.
const secretName = "demo-client-app"

// etcdDir is where the pages mount the Secret.
const etcdDir = "/etc/etcd/"

// demo is the EtcdCluster of the pages, served by one etcd without Kubernetes.
type demo struct {
	cluster *v1alpha1.EtcdCluster
	etcd    *member.Member
	// data is the content of the connection Secret.
	data map[string][]byte
	// server is the certificate of the members.
	server *x509.Certificate
	// authority issued all certificates.
	authority pki.Pair
}

// serve issues the certificates that druid would issue, and starts an etcd that requires them. extra are more names of it.
func serve(t *testing.T, extra ...string) demo {
	t.Helper()
	text, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	d := demo{cluster: &v1alpha1.EtcdCluster{}}
	if err := yaml.UnmarshalStrict(text, d.cluster); err != nil {
		t.Fatalf("%s: %v", sample, err)
	}
	d.cluster.ObjectMeta = metav1.ObjectMeta{Name: d.cluster.Name, Namespace: "default", UID: "demo"}
	d.cluster.Spec.TLS.Client.ExtraSANs = extra
	now := time.Now()
	root, err := pki.NewAuthority(manifests.AuthorityName(d.cluster.Name, manifests.PlaneClient, 1), now, manifests.DefaultCALifetime)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.ParseAuthority(root, now)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(r pki.Request) pki.Pair {
		pair, err := authority.Issue(r, now)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	requests := manifests.CertificatesOf(d.cluster, manifests.PlaneClient, "cluster.local")
	request, ok := requests.Connections[secretName]
	if !ok {
		t.Fatalf("the sample has no client with the Secret %s: %v", secretName, slices.Collect(maps.Keys(requests.Connections)))
	}
	server, client := issue(requests.Server), issue(request)
	if d.server, err = pki.Leaf(server); err != nil {
		t.Fatal(err)
	}
	d.authority = root
	d.data = manifests.ConnectionData(d.cluster, client, root.Certificate)
	pair, err := tls.X509KeyPair(client.Certificate, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AddCert(authority.Certificate)
	dir := files(t, map[string][]byte{"ca": root.Certificate, "crt": server.Certificate, "key": server.Key})
	// The flags are those of agent/certificates.Args.
	d.etcd = member.Start(t, "3.6", member.Options{
		TLS:  &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trust, Certificates: []tls.Certificate{pair}},
		Args: []string{"--cert-file=" + dir + "/crt", "--key-file=" + dir + "/key", "--client-cert-auth=true", "--trusted-ca-file=" + dir + "/ca"},
	})
	return d
}

// mount writes the files of the Secret into a directory, as a kubelet does. endpoints is the address of the etcd of the test.
func (d demo) mount(t *testing.T) string {
	t.Helper()
	data := maps.Clone(d.data)
	data[manifests.KeyEndpoints] = []byte(d.etcd.Endpoint)
	return files(t, data)
}

// local is a configuration of a page for this machine: the URL in it is that of the etcd, and the directory one with the files.
func (d demo) local(t *testing.T, text, url, inPage, here string) string {
	t.Helper()
	for _, word := range []string{url, inPage} {
		if !strings.Contains(text, word) {
			t.Fatalf("the page does not have %s:\n%s", word, text)
		}
	}
	return strings.NewReplacer(url, d.etcd.Endpoint, inPage, here+"/").Replace(text)
}

// hasFile fails if the connection Secret of the page has no such file.
func (d demo) hasFile(t *testing.T, path any) {
	t.Helper()
	key, mounted := strings.CutPrefix(fmt.Sprint(path), etcdDir)
	if !mounted || len(d.data[key]) == 0 {
		t.Errorf("the page has the file %v, and the Secret mounted at %s has %q", path, etcdDir, slices.Sorted(maps.Keys(d.data)))
	}
}

// holds fails if etcd does not have the value of a key.
func (d demo) holds(t *testing.T, key, value string) {
	t.Helper()
	answer, err := d.etcd.Client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != value {
		t.Errorf("etcd has %v at %s, want %q", answer.Kvs, key, value)
	}
}

// files writes files into a new directory.
func files(t *testing.T, content map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// blocks returns the texts of the blocks of a page in a language.
func blocks(t *testing.T, page, language string) (texts []string) {
	t.Helper()
	all, err := pages.Read(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if b.Language == language {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

// blockWith returns the one block of a page in a language that has a text.
func blockWith(t *testing.T, page, language, text string) string {
	t.Helper()
	var found []string
	for _, b := range blocks(t, page, language) {
		if strings.Contains(b, text) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of %s with %q, want 1", page, len(found), language, text)
	}
	return found[0]
}

// parsed is a block of YAML. No key may be there twice.
func parsed(t *testing.T, text string) (content map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return content
}

// keysIn returns the paths of all values in YAML, such as etcd.tls.cert. A list has one path.
func keysIn(content map[string]any) (paths []string) {
	for key, value := range content {
		below, ok := value.(map[string]any)
		if !ok {
			paths = append(paths, key)
			continue
		}
		for _, path := range keysIn(below) {
			paths = append(paths, key+"."+path)
		}
	}
	slices.Sort(paths)
	return paths
}

// at returns the value at a path.
func at(content map[string]any, path string) any {
	first, rest, more := strings.Cut(path, ".")
	below, ok := content[first].(map[string]any)
	if !more || !ok {
		return content[first]
	}
	return at(below, rest)
}

// known fails if a configuration has a key that the program does not document.
func known(t *testing.T, content map[string]any, documented []string) {
	t.Helper()
	for _, path := range keysIn(content) {
		if !slices.Contains(documented, path) {
			t.Errorf("the page sets %s, which the program does not document", path)
		}
	}
}
