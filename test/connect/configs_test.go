package connect

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	clientyaml "go.etcd.io/etcd/client/v3/yaml"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/pages"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// startTimeout of kube-apiserver: it needs 3 to 6 seconds on an idle machine, more next to a compiler.
const startTimeout = 5 * time.Minute

// TestAPIServerPageFlags: the API server starts with the flags of its page.
func TestAPIServerPageFlags(t *testing.T) {
	d := serve(t)
	programs, err := binaries.Programs(t.Context(), t.Logf, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(d.etcd.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	server := &envtest.APIServer{Path: programs["kube-apiserver"], EtcdURL: at, StartTimeout: startTimeout, StopTimeout: startTimeout}
	server.SecureServing.Address, server.SecureServing.Port = "127.0.0.1", fmt.Sprint(machine.Port(t))
	text := d.local(t, blockWith(t, "how-to/connect/kube-apiserver.md", pages.Text, "--etcd-servers"), "https://demo-client.default.svc:2379", etcdDir, d.mount(t))
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "--"), "=")
		if !ok {
			t.Fatalf("%q is no flag with a value", line)
		}
		server.Configure().Set(name, value)
	}
	var log bytes.Buffer
	server.Err = &log
	if err := server.Start(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	stored, err := d.etcd.Client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || stored.Count == 0 {
		t.Errorf("kube-apiserver keeps %d objects in etcd, %v", stored.Count, err)
	}
}

// patroni are the settings of etcd3 in Patroni: docs/yaml_configuration.rst, sections Etcd and Etcdv3.
var patroni = []string{
	"etcd3.host", "etcd3.hosts", "etcd3.use_proxies", "etcd3.url", "etcd3.proxy", "etcd3.srv", "etcd3.srv_suffix", "etcd3.protocol", "etcd3.username",
	"etcd3.password", "etcd3.cacert", "etcd3.cert", "etcd3.key",
}

func TestTheSectionsForPatroniFitTheSecret(t *testing.T) {
	d := serve(t, "etcd.example.com")
	sections := blocks(t, "how-to/connect/patroni.md", pages.YAML)
	if len(sections) != 2 {
		t.Fatalf("the page has %d sections, want one with srv and one with hosts", len(sections))
	}
	for _, text := range sections {
		section := parsed(t, text)
		known(t, section, patroni)
		for _, key := range []string{"cacert", "cert", "key"} {
			d.hasFile(t, at(section, "etcd3."+key))
		}
		if at(section, "etcd3.protocol") != "https" {
			t.Errorf("the page has the protocol %v", at(section, "etcd3.protocol"))
		}
	}
	// The targets of an SRV record are the members below the name of the Service.
	domain := at(parsed(t, sections[0]), "etcd3.srv")
	if want := manifests.NodesServiceName("demo") + ".default.svc.cluster.local"; domain != want {
		t.Errorf("the page looks up %v, want %s", domain, want)
	}
	host, _, _ := strings.Cut(fmt.Sprint(at(parsed(t, sections[1]), "etcd3.hosts")), ":")
	for _, name := range []string{fmt.Sprintf("demo-qtd87.%v", domain), host} {
		if err := d.server.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	d.throughGateway(t, d.etcd.Endpoint, d.mount(t)+"/ca.crt", d.mount(t)+"/tls.crt", d.mount(t)+"/tls.key")
}

// apisix are the keys of APISIX that have to do with etcd: conf/config.yaml.example.
var apisix = []string{
	"apisix.ssl.ssl_trusted_certificate", "deployment.role", "deployment.role_traditional.config_provider", "deployment.etcd.host", "deployment.etcd.prefix",
	"deployment.etcd.timeout", "deployment.etcd.watch_timeout", "deployment.etcd.startup_retry", "deployment.etcd.user", "deployment.etcd.password",
	"deployment.etcd.tls.cert", "deployment.etcd.tls.key", "deployment.etcd.tls.verify", "deployment.etcd.tls.sni",
}

// TestAPISIXFileFitsSecretAndGateway: the file for APISIX fits the Secret and the gateway.
func TestAPISIXFileFitsSecretAndGateway(t *testing.T) {
	d := serve(t)
	text := blockWith(t, "how-to/connect/apisix.md", pages.YAML, "deployment:")
	known(t, parsed(t, text), apisix)
	files := []string{"apisix.ssl.ssl_trusted_certificate", "deployment.etcd.tls.cert", "deployment.etcd.tls.key"}
	for _, key := range files {
		d.hasFile(t, at(parsed(t, text), key))
	}
	here := parsed(t, d.local(t, text, "https://demo-client.default.svc:2379", etcdDir, d.mount(t)))
	if verify := at(here, "deployment.etcd.tls.verify"); verify != true {
		t.Errorf("verify is %v", verify)
	}
	hosts, ok := at(here, "deployment.etcd.host").([]any)
	if !ok || len(hosts) != 1 {
		t.Fatalf("host is %v", at(here, "deployment.etcd.host"))
	}
	file := func(i int) string { return fmt.Sprint(at(here, files[i])) }
	d.throughGateway(t, fmt.Sprint(hosts[0]), file(0), file(1), file(2))
}

// throughGateway writes a key through the JSON gateway with these files.
func (d demo) throughGateway(t *testing.T, endpoint, ca, cert, key string) {
	t.Helper()
	trusted, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}}}
	defer client.CloseIdleConnections()
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	body, err := json.Marshal(map[string]string{"key": encode("/" + t.Name()), "value": encode("from the gateway")})
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Post(endpoint+"/v3/kv/put", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the gateway answers %s", response.Status)
	}
	d.holds(t, "/"+t.Name(), "from the gateway")
}

// cilium are the values of the chart of Cilium: Documentation/helm-values.rst.
var cilium = []string{"etcd.enabled", "etcd.ssl", "etcd.endpoints", "identityAllocationMode"}

// Cilium reads its file with the package client/v3/yaml of etcd: connectEtcdClient in pkg/kvstore/etcd.go.
func TestTheFileForCiliumConnects(t *testing.T) {
	const page, published = "how-to/connect/cilium.md", "https://etcd.example.com:2379"
	d := serve(t, "etcd.example.com")
	known(t, parsed(t, blockWith(t, page, pages.YAML, "identityAllocationMode")), cilium)
	text := blockWith(t, page, pages.YAML, "trusted-ca-file")
	for _, values := range []string{text, blockWith(t, page, pages.YAML, "identityAllocationMode")} {
		if !strings.Contains(values, "- "+published) {
			t.Errorf("there is no endpoint %s in\n%s", published, values)
		}
	}
	if err := d.server.VerifyHostname("etcd.example.com"); err != nil {
		t.Error(err)
	}
	secret := files(t, map[string][]byte{"etcd-client-ca.crt": d.data["ca.crt"], "etcd-client.crt": d.data["tls.crt"], "etcd-client.key": d.data["tls.key"]})
	dir := files(t, map[string][]byte{"etcd.config": []byte(d.local(t, text, published, "/var/lib/etcd-secrets/", secret))})
	config, err := clientyaml.NewConfig(filepath.Join(dir, "etcd.config"))
	if err != nil {
		t.Fatal(err)
	}
	config.DialTimeout = commandWithin
	client, err := clientv3.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Put(t.Context(), "cilium/a", "b"); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "cilium/a", "b")
}

func TestTheProgramInJavaFitsTheSecret(t *testing.T) {
	d := serve(t)
	program := blockWith(t, "how-to/connect/java.md", pages.Java, "class App")
	for name := range d.data {
		if name != manifests.KeyType && !strings.Contains(program, `dir.resolve("`+name+`")`) {
			t.Errorf("the program does not read %s", name)
		}
	}
	if block, _ := pem.Decode(d.data["tls.key"]); block == nil || block.Type != "PRIVATE KEY" {
		t.Error("the private key is not PKCS #8")
	}
	javac, err := exec.LookPath("javac")
	if err != nil {
		t.Log("there is no javac: the syntax of the program is not checked")
		return
	}
	path := filepath.Join(files(t, map[string][]byte{"App.java": []byte(program)}), "App.java")
	// The compiler ends after the syntax, because jetcd is not there.
	if out, err := exec.CommandContext(t.Context(), javac, "-XDshould-stop.ifNoError=PARSE", "-d", filepath.Dir(path), path).CombinedOutput(); err != nil {
		t.Errorf("javac: %v\n%s", err, out)
	}
}
