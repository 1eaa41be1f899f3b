package open

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/backups"
)

func TestOpenTakesTheKindThatIsConfigured(t *testing.T) {
	path := t.TempDir()
	s, err := Open(t.Context(), store.Config{Directory: &store.Directory{Path: path}})
	if err != nil || fmt.Sprint(s) != "directory "+path {
		t.Errorf("a directory opened %v, %v", s, err)
	}
	// Nothing listens at this address, and no request is sent.
	s, err = Open(t.Context(), store.Config{S3: &store.S3{Bucket: "b", Region: "r", Endpoint: "http://127.0.0.1:1"}})
	if err != nil || !strings.HasPrefix(fmt.Sprint(s), "bucket b") {
		t.Errorf("a bucket opened %v, %v", s, err)
	}
	if n := store.Connections(s); n < 2 {
		t.Errorf("long objects of a bucket are read over %d connections, want several", n)
	}
	if s, err := Open(t.Context(), store.Config{}); s != nil || !errors.Is(err, store.ErrInvalid) {
		t.Errorf("nothing opened %T, %v; want ErrInvalid", s, err)
	}
	if s, err := Open(t.Context(), store.Config{Directory: &store.Directory{Path: path + "/no"}}); s != nil || !errors.Is(err, store.ErrNoBucket) {
		t.Errorf("a directory that is not there opened %T, %v; want nil and ErrNoBucket", s, err)
	}
}

// This is the only place that decides about encryption, so every store that is opened here encrypts.
func TestOpenEncryptsWhereKeysAreConfigured(t *testing.T) {
	path, keys := t.TempDir(), backups.Keys(t, "a")
	for key, c := range map[string]store.Config{
		"encrypted": {Directory: &store.Directory{Path: path}, ClientEncryption: &store.ClientEncryption{KeysDir: keys}},
		"plain":     {Directory: &store.Directory{Path: path}},
	} {
		s, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), key, strings.NewReader("content"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, plain := range map[string]bool{"encrypted.age": false, "plain": true} {
		if content, err := os.ReadFile(filepath.Join(path, name)); err != nil || (string(content) == "content") != plain {
			t.Errorf("%s holds %q, %v", name, content, err)
		}
	}
}
