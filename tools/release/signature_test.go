package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// readPublicKey reads the key that users have.
func readPublicKey(t *testing.T, key *minisign.PrivateKey) ed25519.PublicKey {
	t.Helper()
	text, err := publicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		t.Fatalf("the key is not PEM:\n%s", text)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.(ed25519.PublicKey)
}

// expectSignature does what `cosign verify --key` does: it pulls the signature by the digest of the image, verifies what it signs, and
// compares the digest in it. cosign 3.1.3 itself accepted the signature of an image of this program, and that of the checksums.
func expectSignature(t *testing.T, r release, ref name.Digest) {
	t.Helper()
	tag := ref.Context().Tag(strings.Replace(ref.DigestStr(), ":", "-", 1) + ".sig")
	img, err := remote.Image(tag, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.Manifest()
	if err != nil || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" {
		t.Fatalf("the signature has the manifest %+v, %v", manifest, err)
	}
	signature, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	if err != nil {
		t.Fatal(err)
	}
	signed := firstLayer(t, img)
	if !ed25519.Verify(readPublicKey(t, r.key), signed, signature) {
		t.Error("the signature in the registry is not that of the key")
	}
	var got payload
	if err := json.Unmarshal(signed, &got); err != nil {
		t.Fatal(err)
	}
	var want payload
	want.Critical.Identity.Reference = "ghcr.io/etcd-druid/druid:" + string(r.version)
	want.Critical.Image.Digest = ref.DigestStr()
	want.Critical.Type = "cosign container image signature"
	if got.Critical != want.Critical {
		t.Errorf("the signature is about %+v, want %+v", got.Critical, want.Critical)
	}
}

// expectAnotherSignatureStays checks that a push replaces no signature of someone else.
func expectAnotherSignatureStays(t *testing.T, r release, ref name.Digest) {
	t.Helper()
	digest, err := v1.NewHash(ref.DigestStr())
	if err != nil {
		t.Fatal(err)
	}
	tag := signatureTag(ref.Context(), digest)
	other, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, other, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, err = push(t.Context(), r.out, r.version, ref.Context().Name(), []platform{host})
	if err == nil || !strings.Contains(err.Error(), ".sig exists with digest") {
		t.Errorf("want an error about the signature of someone else, got %v", err)
	}
}

func TestTheSignatureIsOfTheImage(t *testing.T) {
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := release{out: t.TempDir(), version: testVersion, key: &key, progress: io.Discard}
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	unsigned := release{out: t.TempDir(), version: testVersion, progress: io.Discard}
	if err := errors.Join(unsigned.writePayload(digest), unsigned.writeSums()); err != nil {
		t.Fatal(err)
	}
	if signature, err := r.imageSignature(unsigned.out, digest); signature != nil || err != nil {
		t.Errorf("without a signature: %v, %v", signature, err)
	}
	if err := errors.Join(r.writePayload(digest), r.writeSums()); err != nil {
		t.Fatal(err)
	}
	if signature, err := r.imageSignature(r.out, digest); signature == nil || err != nil {
		t.Errorf("with a signature: %v, %v", signature, err)
	}
	for _, made := range []release{r, unsigned} {
		if err := checkSums(made.out); err != nil {
			t.Error(err)
		}
	}
	if one, other := contents(t, r.out)[sumsFile], contents(t, unsigned.out)[sumsFile]; !bytes.Equal(one, other) {
		t.Errorf("with a key, the checksums are\n%s\nand without\n%s", one, other)
	}
	digest.Hex = strings.Repeat("b", 64)
	if _, err := r.imageSignature(r.out, digest); err == nil || !strings.Contains(err.Error(), "is about the image sha256:aaa") {
		t.Errorf("want an error about another image, got %v", err)
	}
}

func TestKeyPrintsThePublicKey(t *testing.T) {
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := minisign.EncryptKey("secret", key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "druid.key")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(passwordVariable, "secret")
	var printed bytes.Buffer
	if err := run(t.Context(), []string{"key", "--key", file}, &printed, io.Discard); err != nil {
		t.Fatal(err)
	}
	if want, err := publicKey(&key); err != nil || printed.String() != string(want) {
		t.Errorf("printed\n%s\nwant\n%s, %v", &printed, want, err)
	}
}
