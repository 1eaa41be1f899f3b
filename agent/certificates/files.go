package certificates

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/etcd-druid/druid/internal/pki"
)

// The files of a plane, in the mounted Secrets and in each generation.
const (
	fileAuthorities = "ca.crt"
	fileServer      = "tls.crt"
	fileServerKey   = "tls.key"
	fileClient      = "client.crt"
	fileClientKey   = "client.key"

	// linkCurrent points to the generation in effect. fileTrust are the authorities that the running etcd was started
	// with.
	linkCurrent = "current"
	fileTrust   = "trust.crt"
)

// content is what a plane needs, as PEM.
type content struct {
	authorities    []byte
	server, client pki.Pair
}

// readContent reads the files in dir. A missing file is empty. A plane without a client pair uses the server pair.
func readContent(dir string) (content, error) {
	var c content
	for _, file := range []struct {
		name string
		into *[]byte
	}{
		{fileAuthorities, &c.authorities}, {fileServer, &c.server.Certificate}, {fileServerKey, &c.server.Key},
		{fileClient, &c.client.Certificate}, {fileClientKey, &c.client.Key},
	} {
		raw, err := os.ReadFile(filepath.Join(dir, file.name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("read a certificate: %w", err)
		}
		*file.into = raw
	}
	if len(c.client.Certificate) == 0 && len(c.client.Key) == 0 {
		c.client = c.server
	}
	return c, nil
}

// generation is the name of the directory for the content. It depends on nothing else.
func (c content) generation() string {
	sum := sha256.New()
	for _, part := range [][]byte{c.authorities, c.server.Certificate, c.server.Key, c.client.Certificate, c.client.Key} {
		_, _ = fmt.Fprintf(sum, "%d:", len(part)) // a hash never fails
		_, _ = sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// place writes the content as a generation below dir, and then makes it the one in effect by one rename. It keeps the
// previous generation, from which a handshake can still be reading, and deletes older ones.
func (c content) place(dir string) error {
	name := c.generation()
	into := filepath.Join(dir, name)
	if err := os.MkdirAll(into, 0o700); err != nil {
		return fmt.Errorf("stage certificates: %w", err)
	}
	for file, raw := range map[string][]byte{
		fileAuthorities: c.authorities, fileServer: c.server.Certificate, fileServerKey: c.server.Key,
		fileClient: c.client.Certificate, fileClientKey: c.client.Key,
	} {
		if err := os.WriteFile(filepath.Join(into, file), raw, 0o600); err != nil {
			return fmt.Errorf("stage certificates: %w", err)
		}
	}
	previous, err := os.Readlink(filepath.Join(dir, linkCurrent))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stage certificates: %w", err)
	}
	if err := replaceLink(name, filepath.Join(dir, linkCurrent)); err != nil {
		return err
	}
	return deleteOthers(dir, name, previous)
}

// replaceLink makes link point to target at once, so that a reader sees the old or the new target.
func replaceLink(target, link string) error {
	next := link + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stage certificates: %w", err)
	}
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("stage certificates: %w", err)
	}
	if err := os.Rename(next, link); err != nil {
		return fmt.Errorf("stage certificates: %w", err)
	}
	return nil
}

// deleteOthers deletes all generations except those called keep.
func deleteOthers(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list staged certificates: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || slices.Contains(keep, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("delete old certificates: %w", err)
		}
	}
	return nil
}
