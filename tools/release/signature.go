package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// How cosign stores the signature of an image: as a layer with the signed text, and with the signature in an annotation. This is its
// format in sha256-<digest>.sig, which all of its versions and the admission controllers read.
const (
	payloadType         types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	payloadKind         string          = "cosign container image signature"
	signatureAnnotation string          = "dev.cosignproject.cosign/signature"
)

// plainSuffix is what the name of a signature for cosign and openssl ends with. The file has it as base64. Ed25519 makes the same signature
// each time.
const plainSuffix = ".sig"

// The place of the Ed25519 key in the binary form of a secret key of minisign, by the description of its format: 2 bytes each for the
// algorithms of signature, key derivation and checksum, 32 of salt, 8 and 8 of limits, and 8 of the key's number are before it.
const (
	keyStart = 2 + 2 + 2 + 32 + 8 + 8 + 8
	keyEnd   = keyStart + ed25519.PrivateKeySize
)

// ed25519Key returns the key in a secret key of minisign.
func ed25519Key(key *minisign.PrivateKey) (ed25519.PrivateKey, error) {
	text, err := key.MarshalText()
	if err != nil {
		return nil, err
	}
	_, encoded, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode the key: %w", err)
	}
	if len(raw) < keyEnd {
		return nil, fmt.Errorf("decode the key: it has %d bytes, want at least %d", len(raw), keyEnd)
	}
	found := ed25519.NewKeyFromSeed(raw[keyStart : keyStart+ed25519.SeedSize])
	if !found.Equal(ed25519.PrivateKey(raw[keyStart:keyEnd])) {
		return nil, errors.New("decode the key: its halves do not belong together")
	}
	return found, nil
}

// publicKey returns the public half of a secret key of minisign as PEM, which cosign and openssl read.
func publicKey(key *minisign.PrivateKey) ([]byte, error) {
	secret, err := ed25519Key(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(secret.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// payload is what the signature of an image signs, in the format of simple signing.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]string `json:"optional"`
}

func (r release) payloadFile() string { return fmt.Sprintf("druid-%s-image.payload.json", r.version) }

// writePayload writes what the signature of the image signs. It is the same without a key.
func (r *release) writePayload(digest v1.Hash) error {
	var p payload
	p.Critical.Identity.Reference = r.imageName()
	p.Critical.Image.Digest = digest.String()
	p.Critical.Type = payloadKind
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return r.write(r.payloadFile(), func(w io.Writer) error { _, err := w.Write(text); return err })
}

// signPlain writes the signature of a file of the release next to it.
func (r *release) signPlain(file string) error {
	secret, err := ed25519Key(r.key)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.out, file))
	if err != nil {
		return err
	}
	signature := base64.StdEncoding.EncodeToString(ed25519.Sign(secret, text))
	return r.write(file+plainSuffix, func(w io.Writer) error { _, err := io.WriteString(w, signature); return err })
}

// imageSignature reads the signature of the image of a release as the artifact that cosign looks for. It is nil if the
// release is not signed.
func (r release) imageSignature(dir string, digest v1.Hash) (v1.Image, error) {
	signature, err := os.ReadFile(filepath.Join(dir, r.payloadFile()+plainSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, r.payloadFile()))
	if err != nil {
		return nil, err
	}
	var p payload
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.payloadFile(), err)
	}
	if p.Critical.Image.Digest != digest.String() {
		return nil, fmt.Errorf("%s is about the image %s, and the release has %s: make the release again", r.payloadFile(), p.Critical.Image.Digest, digest)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{
		Layer: static.NewLayer(text, payloadType), Annotations: map[string]string{signatureAnnotation: string(signature)},
	})
}

// signatureTag is where cosign looks for the signatures of an image.
func signatureTag(repository name.Repository, digest v1.Hash) name.Tag {
	return repository.Tag(fmt.Sprintf("%s-%s.sig", digest.Algorithm, digest.Hex))
}

// pushSignature writes the signature to the registry, if there is one.
func pushSignature(repository name.Repository, digest v1.Hash, signature v1.Image, options []remote.Option) error {
	if signature == nil {
		return nil
	}
	tag := signatureTag(repository, digest)
	if err := remote.Write(tag, signature, options...); err != nil {
		return fmt.Errorf("push the signature to %s: %w", tag, err)
	}
	return nil
}
