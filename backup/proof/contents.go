package proof

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Contents are what a database holds next to its keys. Of leases and users etcd reports no revision: they are as of the full,
// and of leases also those that keys which were written later refer to.
type Contents struct {
	Leases int64 `json:"leases"`
	// AuthEnabled says that clients need a user, AuthRevision counts changes of users and roles.
	AuthEnabled  bool   `json:"authEnabled"`
	AuthRevision uint64 `json:"authRevision"`
}

func contentsOf(db *bolt.DB) (c Contents, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		if leases := tx.Bucket(schema.Lease.Name()); leases != nil {
			cursor := leases.Cursor()
			for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
				c.Leases++
			}
		}
		auth := tx.Bucket(schema.Auth.Name())
		if auth == nil {
			return nil
		}
		c.AuthEnabled = bytes.Equal(auth.Get(schema.AuthEnabledKeyName), []byte{1})
		if v := auth.Get(schema.AuthRevisionKeyName); len(v) == 8 {
			c.AuthRevision = binary.BigEndian.Uint64(v)
		}
		return nil
	})
	return c, err
}
