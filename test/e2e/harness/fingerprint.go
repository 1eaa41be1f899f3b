package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Fingerprint is a checksum of everything on the volume: names, modes and contents.
func (v Volume) Fingerprint(t testing.TB) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(v.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %s\n", path, info.Mode())
		if !info.Mode().IsRegular() {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(sum, file)
		return err
	})
	if err != nil {
		t.Fatalf("checksum of volume %s: %v", v.Dir, err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
