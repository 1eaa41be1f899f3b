package backups

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// Keys is a directory like the mounted Secret of spec.backup.encryption: age identities under these names, the first of
// which encrypts. Without names it is empty.
func Keys(tb testing.TB, names ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range names {
		AddKey(tb, dir, name)
	}
	if len(names) > 0 {
		UseKey(tb, dir, names[0])
	}
	return dir
}

// AddKey adds an identity, as age-keygen prints it, to a directory of keys.
func AddKey(tb testing.TB, dir, name string) {
	tb.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	write(tb, filepath.Join(dir, name), fmt.Sprintf("# public key: %s\n%s\n", identity.Recipient(), identity))
}

// UseKey lets the identity of this name encrypt from now on.
func UseKey(tb testing.TB, dir, name string) {
	tb.Helper()
	write(tb, filepath.Join(dir, "current"), name+"\n")
}

// Decrypts says whether the identity of this name opens an encrypted object.
func Decrypts(tb testing.TB, dir, name, object string) bool {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(object)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	identities, err := age.ParseIdentities(strings.NewReader(string(content)))
	if err != nil {
		tb.Fatal(err)
	}
	_, err = age.Decrypt(f, identities...)
	return err == nil
}

func write(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}
