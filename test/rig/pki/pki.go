// Package pki makes the keys, certificates and kubeconfigs of one rig: one
// certificate authority, EC P-256 keys throughout, files below one directory.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// validity is far longer than any rig lives, and starts in the past because
// the host's clock may be set back while a rig runs.
const validity = 365 * 24 * time.Hour

// Subject asks for one certificate, good for client and server alike.
type Subject struct {
	// File is the base name of the files: File.crt, File.key and, when Server
	// is set, File.kubeconfig.
	File string
	// User and Groups are who Kubernetes takes the holder for.
	User   string
	Groups []string
	// Names are the DNS names and addresses that the holder serves.
	Names []string
	// Server is the apiserver's URL for a kubeconfig.
	Server string
}

// CA is a certificate authority that writes what it signs below Dir.
type CA struct {
	Dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// New makes an authority and writes ca.crt and ca.key.
func New(dir string) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the PKI: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the CA: %w", err)
	}
	t := template509(pkix.Name{CommonName: "rig-ca"})
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the CA: %w", err)
	}
	ca := &CA{Dir: dir, cert: cert, key: key, pem: certPEM(der)}
	if _, err := ca.write("ca", der, key); err != nil {
		return nil, err
	}
	return ca, nil
}

// Issue makes a key and certificate, and a kubeconfig when one is asked for.
func (ca *CA) Issue(s Subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", s.File, err)
	}
	t := template509(pkix.Name{CommonName: s.User, Organization: s.Groups})
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, n := range s.Names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, key.Public(), ca.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", s.File, err)
	}
	keyPEM, err := ca.write(s.File, der, key)
	if err != nil || s.Server == "" {
		return err
	}
	kc, err := kubeconfig(s.Server, ca.pem, certPEM(der), keyPEM)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(ca.Dir, s.File+".kubeconfig"), kc, 0o600)
}

// ServiceAccountKey writes the key pair that signs service account tokens.
func (ca *CA) ServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the service account key: %w", err)
	}
	private, err := privatePEM(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the service account key: %w", err)
	}
	if err := os.WriteFile(filepath.Join(ca.Dir, "sa.key"), private, 0o600); err != nil {
		return err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return os.WriteFile(filepath.Join(ca.Dir, "sa.pub"), public, 0o644)
}

func (ca *CA) write(name string, der []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	if err := os.WriteFile(filepath.Join(ca.Dir, name+".crt"), certPEM(der), 0o644); err != nil {
		return nil, err
	}
	private, err := privatePEM(key)
	if err != nil {
		return nil, err
	}
	return private, os.WriteFile(filepath.Join(ca.Dir, name+".key"), private, 0o600)
}

func template509(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		serial = big.NewInt(time.Now().UnixNano()) // unique within one rig, which is all that is needed
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func privatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

var kubeconfigTemplate = template.Must(template.New("kubeconfig").Parse(`apiVersion: v1
kind: Config
clusters:
- name: rig
  cluster: {server: "{{.Server}}", certificate-authority-data: {{.CA}}}
users:
- name: rig
  user: {client-certificate-data: {{.Cert}}, client-key-data: {{.Key}}}
contexts:
- name: rig
  context: {cluster: rig, user: rig}
current-context: rig
`))

// kubeconfig embeds all data, so that the file can be copied anywhere.
func kubeconfig(server string, ca, cert, key []byte) ([]byte, error) {
	b64 := base64.StdEncoding.EncodeToString
	var b bytes.Buffer
	err := kubeconfigTemplate.Execute(&b, map[string]string{
		"Server": server, "CA": b64(ca), "Cert": b64(cert), "Key": b64(key),
	})
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	return b.Bytes(), nil
}
