package restore

import (
	"fmt"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// clearSpaceAlarms drops the alarms NOSPACE, and none that it does not understand.
func clearSpaceAlarms(tx *bolt.Tx) error {
	bucket := tx.Bucket(schema.Alarm.Name())
	if bucket == nil {
		return nil
	}
	var space [][]byte
	err := bucket.ForEach(func(key, _ []byte) error {
		var alarm etcdserverpb.AlarmMember
		if proto.Unmarshal(key, &alarm) == nil && alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			space = append(space, key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the alarms: %w", err)
	}
	for _, key := range space {
		if err := bucket.Delete(key); err != nil {
			return fmt.Errorf("drop an alarm: %w", err)
		}
	}
	return nil
}
