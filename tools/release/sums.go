package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

const (
	sumsFile      = "SHA256SUMS"
	signatureFile = sumsFile + ".minisig"
)

// passwordVariable is the environment variable with the password of the key.
const passwordVariable = "RELEASE_KEY_PASSWORD"

// readKey reads a secret key of minisign, with or without a password.
func readKey(path, password string) (*minisign.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	var key minisign.PrivateKey
	if minisign.IsEncrypted(text) {
		if password == "" {
			return nil, fmt.Errorf("the key %s has a password: set it in the variable %s", path, passwordVariable)
		}
		key, err = minisign.DecryptKey(password, text)
	} else {
		err = key.UnmarshalText(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w; create one with minisign -G", path, err)
	}
	return &key, nil
}

// isSignature returns whether a file of a release is a signature. The checksums do not name it, so they are the same without a key.
func isSignature(name string) bool {
	return strings.HasSuffix(name, plainSuffix) || name == signatureFile
}

// writeSums writes the checksums of all files, in the format of sha256sum. If there is a key, it also writes their
// signatures, for minisign, and for cosign and openssl, and the signature of the image. Ed25519 and the comments make
// the same signatures each time.
func (r *release) writeSums() error {
	entries, err := filesOf(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(e.content), e.name)
	}
	if err := os.WriteFile(filepath.Join(r.out, sumsFile), sums.Bytes(), plainMode); err != nil {
		return err
	}
	if r.key == nil {
		r.say("the release is not signed: set KEY to a secret key of minisign to sign its checksums and its image")
		return nil
	}
	reader := minisign.NewReader(bytes.NewReader(sums.Bytes()))
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	trusted := fmt.Sprintf("druid %s, commit %s", r.version, r.commit)
	signature := reader.SignWithComments(*r.key, trusted, "signature of "+sumsFile)
	if err := os.WriteFile(filepath.Join(r.out, signatureFile), signature, plainMode); err != nil {
		return err
	}
	return errors.Join(r.signPlain(sumsFile), r.signPlain(r.payloadFile()))
}

// checkSums fails if a file of a release is not what the checksums say, or if they do not name it.
func checkSums(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return fmt.Errorf("read the checksums: %w; run make release first", err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	entries, err := filesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.name == sumsFile || isSignature(e.name) {
			continue
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(e.content)); got != want[e.name] {
			err = errors.Join(err, fmt.Errorf("%s is not the file in %s: make the release again", e.name, sumsFile))
		}
		delete(want, e.name)
	}
	for name := range want {
		err = errors.Join(err, fmt.Errorf("%s is missing", name))
	}
	return err
}
