package restore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/boltdb"
)

// TestDatabaseFormatMustSuitEtcd: the format of a database must suit the etcd that is to run.
func TestDatabaseFormatMustSuitEtcd(t *testing.T) {
	for name, test := range map[string]struct {
		file   snapshot.File
		target string
		want   error
	}{
		"nothing is reported":                         {snapshot.File{}, "3.6", nil},
		"the same minor":                              {snapshot.File{StorageVersion: "3.6.0", ClusterVersion: "3.6.0"}, "3.6", nil},
		"the minor before":                            {snapshot.File{StorageVersion: "3.6.0", ClusterVersion: "3.6.0"}, "3.7", nil},
		"a newer storage":                             {snapshot.File{StorageVersion: "3.7.0"}, "3.6", ErrVersion},
		"a newer cluster":                             {snapshot.File{ClusterVersion: "3.7.0"}, "3.6", ErrVersion},
		"older than what is restored":                 {snapshot.File{ClusterVersion: "3.4.0"}, "3.6", ErrVersion},
		"a cluster that had not reported its version": {snapshot.File{ClusterVersion: "3.0.0"}, "3.6", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkFormat(test.file, &Config{EtcdVersion: test.target}); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestOnlyAlarmsOfSpaceAreCleared(t *testing.T) {
	t.Parallel()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(clearSpaceAlarms); err != nil {
		t.Errorf("without a bucket: %v", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket(schema.Alarm.Name())
		if err != nil {
			return err
		}
		for _, kind := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
			for member := range 3 {
				key, err := proto.Marshal(&etcdserverpb.AlarmMember{MemberID: uint64(member + 1), Alarm: kind})
				if err != nil {
					return err
				}
				if err := bucket.Put(key, nil); err != nil {
					return err
				}
			}
		}
		if err := bucket.Put([]byte("\xff"), nil); err != nil {
			return err
		}
		return clearSpaceAlarms(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	corrupt, unknown := 0, 0
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Alarm.Name()).ForEach(func(key, _ []byte) error {
			var alarm etcdserverpb.AlarmMember
			switch {
			case proto.Unmarshal(key, &alarm) != nil:
				unknown++
			case alarm.Alarm == etcdserverpb.AlarmType_CORRUPT:
				corrupt++
			default:
				t.Errorf("%v is left", &alarm)
			}
			return nil
		})
	})
	if err != nil || corrupt != 3 || unknown != 1 {
		t.Errorf("%d alarms CORRUPT and %d unknown are left (%v), want 3 and 1", corrupt, unknown, err)
	}
}

// TestFileDamagedWhenSavedIsNamed: a file that was damaged when it was saved is named.
// A database that was damaged on the disk of its etcd has checksums that match. bbolt would end the process.
func TestFileDamagedWhenSavedIsNamed(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 13)
	s.traffic(100)
	good := s.saved()
	meta := metaOf(t, good)
	named := 0
	for page := uint64(2); page < meta.End && named < 20; page++ {
		at := int(page * meta.PageSize)
		if boltdb.ID(good[at:]) != page { // it goes on with a value of the page before
			continue
		}
		t.Run(fmt.Sprint("page ", page), func(t *testing.T) {
			file := s.fileOf("damaged.db", summed(flip(unsummed(good), at)))
			g := newTarget(t)
			_, err := Run(t.Context(), g.ofFile(s, file, "3.6"))
			switch {
			case err == nil: // nothing refers to that page
			case !isFileError(err) || !strings.Contains(err.Error(), fmt.Sprint("page ", page)):
				t.Error(err)
			default:
				named++
				untouched(t, g)
			}
		})
	}
	if named < 8 {
		t.Errorf("only %d pages of %d were named", named, meta.End)
	}
}

// TestFullDamagedWhenTakenIsNamed: a full that was damaged when it was taken is named.
func TestFullDamagedWhenTakenIsNamed(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 14)
	s.stable(50)
	taken, good := s.full(), s.saved()
	meta := metaOf(t, good)
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, flip(unsummed(good), int(meta.Root*meta.PageSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := s.putFull("damaged", path, taken.Trailer)
	p := catalog.Plan{Full: s.named(taken.Key)}
	p.Full.Key, p.Full.Size = o.Key, o.Size
	g := newTarget(t)
	_, err := Run(t.Context(), g.config(s, p, "3.6"))
	if found, ok := errors.AsType[*snapshot.DamagedError](err); !ok || found.Object != o.Key || !strings.Contains(err.Error(), "in its header") {
		t.Errorf("it ends with %v", err)
	}
	untouched(t, g)
}

// putFull puts a database into the store as a full backup, as if etcd had sent it.
func (s *source) putFull(key, path string, t snapshot.Trailer) store.Object {
	s.tb.Helper()
	database, err := os.ReadFile(path)
	if err != nil {
		s.tb.Fatal(err)
	}
	sum := sha256.Sum256(database)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		s.tb.Fatal(err)
	}
	object := encoder.EncodeAll(append(database, sum[:]...), nil)
	t.Size, t.SHA256 = int64(len(database)), hex.EncodeToString(sum[:])
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	t.Stored, t.CRC32C = int64(len(object)), crc32.Checksum(object, castagnoli)
	text, err := json.Marshal(t)
	if err != nil {
		s.tb.Fatal(err)
	}
	const magic = "druidful"
	object = binary.LittleEndian.AppendUint32(object, 0x184D2A5D)
	object = binary.LittleEndian.AppendUint32(object, uint32(len(text)+8+len(magic)))
	object = append(object, text...)
	object = binary.LittleEndian.AppendUint32(object, crc32.Checksum(text, castagnoli))
	object = binary.LittleEndian.AppendUint32(object, uint32(len(text)))
	o, err := s.store.Put(s.tb.Context(), key, bytes.NewReader(append(object, magic...)), store.PutOptions{})
	if err != nil {
		s.tb.Fatal(err)
	}
	return o
}

func metaOf(t *testing.T, database []byte) boltdb.Meta {
	t.Helper()
	meta, ok := boltdb.ParseMeta(database)
	if !ok {
		t.Fatal("it does not begin with a meta page")
	}
	return meta
}
