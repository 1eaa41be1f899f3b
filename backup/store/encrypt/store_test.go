package encrypt

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/s3"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

func TestMain(m *testing.M) { os.Exit(bucket.Main(m)) }

// sizes around the limits of chunks.
var sizes = []int64{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize, 5*chunkSize + 4711}

func TestADirectoryConforms(t *testing.T) {
	p := newPlace(t)
	storetest.Run(t, storetest.Subject{
		Part:      1 << 20,
		Open:      func(t *testing.T) store.Store { return p.open(t, true) },
		Leftovers: func(t *testing.T) int { return p.leftovers(t) },
		Abandon: func(t *testing.T, key string) {
			p.write(t, filepath.Join(filepath.Dir(key), ".put-0123456789abcdef0123456789-"+filepath.Base(key)), []byte("half"))
		},
	})
}

func (p place) leftovers(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(p.path, func(name string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(name), ".put-") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestABucketConforms(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in, p, credentials := server.Make(t, "encrypted", false), newPlace(t), t.TempDir()
	for name, content := range map[string]string{"accessKeyID": bucket.AccessKey, "secretAccessKey": bucket.SecretKey} {
		if err := os.WriteFile(filepath.Join(credentials, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Run(t, storetest.Subject{
		Part: store.PartSize,
		Open: func(t *testing.T) store.Store {
			inner, err := s3.Open(t.Context(), store.S3{Bucket: in, Region: bucket.Region, Endpoint: server.Endpoint, PathStyle: true, CredentialsDir: credentials})
			if err != nil {
				t.Fatal(err)
			}
			return Around(inner, &store.ClientEncryption{KeysDir: p.keys})
		},
		Leftovers: func(t *testing.T) int { return server.Uploads(t, in) },
		Abandon: func(t *testing.T, key string) {
			if _, err := server.Client().CreateMultipartUpload(t.Context(),
				&awss3.CreateMultipartUploadInput{Bucket: aws.String(in), Key: aws.String(key)}); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func TestRangesOfEncryptedObjects(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	for _, size := range sizes {
		key := strings.Replace(object, "ff", string(rune('a'+len(list(t, s, ""))))+"0", 1)
		content := put(t, s, key, size)
		if listed := list(t, s, key); len(listed) != 1 || listed[0].Size != size {
			t.Errorf("%d bytes are listed as %+v", size, listed)
		}
		// The last 4096 bytes are the range in which a trailer is read.
		edges := []int64{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3*chunkSize - 7, max(size-4096, 0), max(size-1, 0), size, size + 1}
		for _, from := range edges {
			for _, length := range []int64{-1, 0, 1, 4096, chunkSize, size, size + 1, math.MaxInt64} {
				got, err := get(t, s, key, from, length)
				begin, end := min(from, size), size
				if length >= 0 {
					end = begin + min(size-begin, length)
				}
				if err != nil || !bytes.Equal(got, content[begin:end]) {
					t.Errorf("%d bytes, %d from %d: %d bytes, %v; want those from %d to %d", size, length, from, len(got), err, begin, end)
				}
			}
		}
	}
}

// The content never appears on the disk, and a header is as the documentation of the format says.
func TestNothingIsInPlain(t *testing.T) {
	p := newPlace(t)
	secret := strings.Repeat("password of the production database ", 100)
	if _, err := p.open(t, true).Put(t.Context(), object, strings.NewReader(secret), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	raw := p.raw(t)
	if bytes.Contains(raw, []byte("password")) {
		t.Error("the content stands in the object")
	}
	lines := strings.Split(string(raw[:headerSize]), "\n")
	if len(lines) != 5 || lines[0] != "age-encryption.org/v1" || !strings.HasPrefix(lines[1], "-> X25519 ") || !strings.HasPrefix(lines[3], "--- ") {
		t.Errorf("the header is\n%s", raw[:headerSize])
	}
	if got, want := int64(len(raw)), headerSize+nonceSize+int64(len(secret))+tagSize; got != want {
		t.Errorf("the object has %d bytes, want %d", got, want)
	}
}

// TestPlainAndEncryptedSideBySide: plain and encrypted objects stand together.
// A store may be older than its keys, and the keys may be removed later.
func TestPlainAndEncryptedSideBySide(t *testing.T) {
	p := newPlace(t)
	encrypting, plain := p.open(t, true), p.open(t, false)
	const formation, early, late = "default/demo/00000001-abcd/lineage.json", "default/demo/00000001-abcd/delta/early", "default/demo/00000001-abcd/delta/late"
	early0, late0, formation0 := put(t, plain, early, 1000), put(t, encrypting, late, 70_000), put(t, encrypting, formation, 100)
	for name, s := range map[string]*Store{"with keys": encrypting, "without": plain} {
		var got []string
		for _, o := range list(t, s, "default/demo/") {
			got = append(got, o.Key)
		}
		if want := early + " " + late + " " + formation; strings.Join(got, " ") != want {
			t.Errorf("%s: listed %v, want %s", name, got, want)
		}
		if got, err := get(t, s, early, 0, -1); err != nil || !bytes.Equal(got, early0) {
			t.Errorf("%s: the plain one: %d bytes, %v", name, len(got), err)
		}
		if got, err := get(t, s, formation, 0, -1); err != nil || !bytes.Equal(got, formation0) {
			t.Errorf("%s: the record: %d bytes, %v", name, len(got), err)
		}
	}
	if got, err := get(t, encrypting, late, 0, -1); err != nil || !bytes.Equal(got, late0) {
		t.Errorf("the encrypted one: %d bytes, %v", len(got), err)
	}
	for _, from := range []int64{0, 100} {
		if _, err := get(t, plain, late, from, -1); !errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrDamaged) ||
			!says(err, late, "no keys are configured", "keySecretRef") {
			t.Errorf("the encrypted one without keys: %v; want ErrNoKey, the object, the key and what to do", err)
		}
	}
	if _, err := encrypting.Put(t.Context(), early, strings.NewReader("other"), store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrExists) {
		t.Errorf("put over a plain one: %v, want ErrExists", err)
	}
	for _, key := range []string{early, late} {
		if err := plain.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if left := list(t, encrypting, ""); len(left) != 1 || left[0].Key != formation {
		t.Errorf("left are %+v, want the record alone", left)
	}
}

func TestTwoObjectsOfOneNameAreListedOnce(t *testing.T) {
	p := newPlace(t)
	encrypting, plain := p.open(t, true), p.open(t, false)
	put(t, encrypting, object, 10)
	put(t, plain, object, 20)
	for s, want := range map[*Store]int64{encrypting: 10, plain: 20} {
		listed := list(t, s, "")
		content, err := get(t, s, object, 0, -1)
		if len(listed) != 1 || listed[0].Size != want || err != nil || int64(len(content)) != want {
			t.Errorf("listed %+v, read %d bytes, %v; want one of %d", listed, len(content), err, want)
		}
	}
	if _, err := encrypting.Put(t.Context(), object, strings.NewReader("new"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if content, err := get(t, plain, object, 0, -1); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("what was replaced is still there: %q, %v", content, err)
	}
}

func TestNamesOfEncryptedObjectsAreRefused(t *testing.T) {
	s := newPlace(t).open(t, true)
	_, putErr := s.Put(t.Context(), "a.age", strings.NewReader(""), store.PutOptions{})
	_, getErr := s.Get(t.Context(), "a.age", 0, -1)
	for _, err := range []error{putErr, getErr, s.Delete(t.Context(), "a.age")} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}

// says reports whether an error contains all of these words.
func says(err error, words ...string) bool {
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			return false
		}
	}
	return true
}
