package restore

import (
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

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
