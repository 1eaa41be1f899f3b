package start

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
)

// files are the Secrets of a plane as the agent finds them, by name.
type files map[string][]byte

// with returns the files with others in their place. A nil content removes a file.
func (f files) with(changed files) files {
	all := maps.Clone(f)
	maps.Copy(all, changed)
	return all
}

func pairOf(p pki.Pair) files { return files{"tls.crt": p.Certificate, "tls.key": p.Key} }

func clientOf(p pki.Pair) files { return files{"client.crt": p.Certificate, "client.key": p.Key} }

// read returns what is mounted for a plane of the member, and write replaces it and has the agent look at it.
func (m *member) read(plane string) files {
	m.c.t.Helper()
	all := files{}
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key", "client.crt", "client.key"} {
		raw, err := os.ReadFile(filepath.Join(m.cfg.TLSSource, plane, name))
		if err != nil {
			m.c.t.Fatal(err)
		}
		all[name] = raw
	}
	return all
}

func (m *member) write(plane string, all files) {
	m.c.t.Helper()
	for name, content := range all {
		path := filepath.Join(m.cfg.TLSSource, plane, name)
		err := os.WriteFile(path, content, 0o600)
		if content == nil {
			err = os.Remove(path)
		}
		if err != nil {
			m.c.t.Fatal(err)
		}
	}
	m.b.certs.Load(m.c.t.Context())
}

// foreignIssuer is an authority that druid could not have made: it signs through an intermediate, or at other times.
type foreignIssuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (c *cluster) sign(template *x509.Certificate, by foreignIssuer) (foreignIssuer, pki.Pair) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if by.certificate == nil {
		by = foreignIssuer{template, key}
	}
	raw, err1 := x509.CreateCertificate(rand.Reader, template, by.certificate, &key.PublicKey, by.key)
	encoded, err2 := x509.MarshalPKCS8PrivateKey(key)
	certificate, err3 := x509.ParseCertificate(raw)
	if err := errors.Join(err1, err2, err3); err != nil {
		c.t.Fatal(err)
	}
	return foreignIssuer{certificate, key}, pki.Pair{
		Certificate: pki.Encode([]*x509.Certificate{certificate}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}
}

// issuerOf returns the authority of a plane with its key.
func (c *cluster) issuerOf(plane string) foreignIssuer {
	c.t.Helper()
	pair := c.secure.authorities[plane]
	both, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	return foreignIssuer{both.Leaf, both.PrivateKey.(*ecdsa.PrivateKey)}
}

// wrong is a state of the Secrets that no member may use.
type wrong struct {
	name  string
	files files
	says  string
	// runs: a new etcd can use it, and one that runs cannot.
	runs bool
}

// wrongs returns everything that a user can do wrong with the Secrets of a plane of a member. good is what is right.
func (m *member) wrongs(plane string, good files) []wrong {
	c := m.c
	c.t.Helper()
	own := c.secure.authorities[plane]
	right := m.request(plane)
	request := func(change func(*pki.Request)) pki.Pair { r := right; change(&r); return c.issue(own, r) }
	other, err := pki.NewAuthority("other", time.Now(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	named, err := pki.NewAuthority(plane, time.Now(), time.Hour) // another authority of the same name
	if err != nil {
		c.t.Fatal(err)
	}
	leaf := func() *x509.Certificate {
		return &x509.Certificate{
			Subject: pkix.Name{CommonName: "etcd"}, DNSNames: right.DNSNames, IPAddresses: right.IPs,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	authority := func(name string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	}
	root, rootPair := c.sign(authority("root"), foreignIssuer{})
	between, _ := c.sign(authority("between"), root)
	_, incomplete := c.sign(leaf(), between)
	early := leaf()
	early.NotBefore, early.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	_, soon := c.sign(early, c.issuerOf(plane))
	expired := request(func(r *pki.Request) { r.Lifetime = -time.Minute })
	client := func(change func(*pki.Request)) pki.Pair {
		r := pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour}
		change(&r)
		return c.issue(own, r)
	}
	all := []wrong{
		{"the key of another certificate", files{"tls.key": request(func(*pki.Request) {}).Key}, "server certificate: the private key does not belong", false},
		{"a chain without its intermediate", pairOf(incomplete).with(files{"ca.crt": rootPair.Certificate}),
			"server certificate: the certificate is not signed by", false},
		{"an authority that did not sign the certificate", files{"ca.crt": other.Certificate}, "server certificate: the certificate is not signed by", false},
		{"another authority of the same name", files{"ca.crt": named.Certificate}, "server certificate: the certificate is not signed by", false},
		{"expired", pairOf(expired), "server certificate: the certificate has expired", false},
		{"not yet valid", pairOf(soon), "server certificate: the certificate is not valid yet", false},
		{"not for clients", pairOf(request(func(r *pki.Request) { r.Client = false })), "lacks an extended key usage; issue one that has it: client auth", false},
		{"not for servers", pairOf(request(func(r *pki.Request) { r.Server = false })), "lacks an extended key usage; issue one that has it: server auth", false},
		{"other names", pairOf(request(func(r *pki.Request) { r.DNSNames = []string{"example.com"} })), "not valid for a name that is needed", false},
		{"no names", pairOf(request(func(r *pki.Request) { r.DNSNames, r.IPs = nil, nil })), "not valid for a name that is needed", false},
		{"authority and certificate swapped", pairOf(own).with(files{"ca.crt": good["tls.crt"]}), "ca.crt is not a certificate authority", false},
		{"the authority as certificate", pairOf(own), "server certificate: ", false},
		{"certificate and key swapped", files{"tls.crt": good["tls.key"], "tls.key": good["tls.crt"]}, "server certificate: tls.crt is not PEM", false},
		{"the pair of another cluster, with its authority",
			pairOf(c.issue(other, right)).with(clientOf(c.issue(other, pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour}))).with(
				files{"ca.crt": other.Certificate}), "unknown to the running etcd", false},
		{"the client's key of another certificate", files{"client.key": client(func(*pki.Request) {}).Key},
			"client certificate: the private key does not belong", false},
		{"an expired client", clientOf(client(func(r *pki.Request) { r.Lifetime = -time.Minute })), "client certificate: the certificate has expired", false},
		{"a client of another authority", clientOf(c.issue(other, pki.Request{CommonName: "druid-agent", Client: true, Lifetime: time.Hour})),
			"client certificate: the certificate is not signed by", false},
		{"a client for servers", clientOf(client(func(r *pki.Request) { r.Client, r.Server = false, true })),
			"client certificate: the certificate lacks an extended key usage", false},
		{"client and server swapped", files{
			"tls.crt": good["client.crt"], "tls.key": good["client.key"], "client.crt": good["tls.crt"], "client.key": good["tls.key"],
		}, "server certificate: ", false},
		{"nothing", files{"ca.crt": nil, "tls.crt": nil, "tls.key": nil, "client.crt": nil, "client.key": nil}, "ca.crt is missing", false},
	}
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key", "client.crt", "client.key"} {
		all = append(all,
			wrong{"an empty " + file, files{file: {}}, "is missing", false},
			wrong{file + " that is not PEM", files{file: []byte("certificate")}, "is not PEM", false},
			wrong{"half of " + file, files{file: good[file][:len(good[file])/2]}, "is not PEM", false})
	}
	if plane == certificates.PlanePeer {
		all = append(all, wrong{
			name: "a client that gets names", files: clientOf(client(func(r *pki.Request) { r.DNSNames = right.DNSNames })),
			says: "client certificate: it has subject alternative names", runs: true,
		})
	}
	return all
}

// shows returns the serial number of the certificate that the member shows on the port of a plane.
func (m *member) shows(plane string) (string, error) {
	port := config.ClientPort
	if plane == certificates.PlanePeer {
		port = config.PeerPort
	}
	ctx, cancel := context.WithTimeout(m.c.t.Context(), 5*time.Second)
	defer cancel()
	settings := m.b.certs.Client()
	if plane == certificates.PlanePeer {
		settings = m.b.certs.Peer()
	}
	conn, err := (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", net.JoinHostPort(m.cfg.ListenHost, fmt.Sprint(port)))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// Each wrong pair is given to all members of a running cluster, on each plane. The agents name what is wrong, and every etcd shows the last
// good certificate, connects to its peers and serves. In a new Pod, etcd is not started with the pair, for the same reason.
func TestWrongPairNamedAndMembersServe(t *testing.T) {
	t.Parallel()
	names := []string{"c-a", "c-b", "c-c"}
	c := newCluster(t, "3.7.3", names...)
	c.withTLS()
	for _, m := range c.members {
		m.start()
	}
	before := c.voters(names...)
	for _, plane := range []string{certificates.PlaneClient, certificates.PlanePeer} {
		good := map[string]files{}
		for _, m := range c.members {
			good[m.name] = m.read(plane)
		}
		for _, each := range c.members["c-a"].wrongs(plane, good["c-a"]) {
			t.Run(plane+": "+each.name, func(t *testing.T) {
				for _, name := range names {
					m := c.members[name]
					serial, err := m.shows(plane)
					if err != nil {
						t.Fatal(err)
					}
					given := m.wrongs(plane, good[name])
					i := slices.IndexFunc(given, func(w wrong) bool { return w.name == each.name })
					m.write(plane, given[i].files)
					if problem := m.problem(plane); !strings.Contains(problem, each.says) {
						t.Errorf("%s says %q, want %q", name, problem, each.says)
					}
					if after, err := m.shows(plane); err != nil || after != serial {
						t.Errorf("%s shows certificate %s, before %s (%v)", name, after, serial, err)
					}
					if err := m.inNewPod(); !each.runs && (err == nil || !strings.Contains(err.Error(), each.says)) {
						t.Errorf("in a new Pod, %s says %v, want %q", name, err, each.says)
					}
				}
				c.put("c-a", "given", plane+each.name)
				if t.Failed() {
					return
				}
				for _, name := range names {
					m := c.members[name]
					m.write(plane, good[name])
					if problem := m.problem(plane); problem != "" {
						t.Errorf("%s says %q of what was good", name, problem)
					}
				}
			})
		}
	}
	if after := c.voters(names...); !equalIDs(before, after) {
		t.Errorf("the members are %v, before %v", after, before)
	}
	for name, m := range c.members {
		if slices.Contains(m.rules(), "resume") {
			t.Errorf("%s was started again: %v", name, m.rules())
		}
	}
}

func equalIDs(a, b map[string]uint64) bool {
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// problem is what the agent reports of a plane.
func (m *member) problem(plane string) string {
	for _, s := range m.b.certs.States() {
		if s.Plane == plane {
			return s.Problem
		}
	}
	return ""
}

// inNewPod returns why etcd would not start in a new Pod with what is mounted now.
func (m *member) inNewPod() error {
	cfg := m.cfg
	cfg.TLSDir, cfg.ConfigPath = m.c.t.TempDir(), filepath.Join(m.c.t.TempDir(), "config.yaml")
	var issuers []string // as druid writes them for a formed cluster
	for plane := range m.c.secure.authorities {
		issuers = append(issuers, plane+": '"+pki.Fingerprint(m.c.issuerOf(plane).certificate)+"'")
	}
	if err := os.WriteFile(cfg.ConfigPath, []byte("issuers: {"+strings.Join(issuers, ", ")+"}\n"), 0o600); err != nil {
		m.c.t.Fatal(err)
	}
	certs := certificates.New(cfg, PeerHost(cfg, m.name), slog.New(slog.DiscardHandler))
	certs.Load(m.c.t.Context())
	return certs.Ready()
}
