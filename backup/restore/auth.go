package restore

import (
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// The user of the agents, and the role that permits everything.
const (
	agentUser = "druid-agent"
	rootRole  = "root"
)

// admitAgent gives the user of the agents the role root, if authentication is on. It keeps all other users and roles. A
// user that is there keeps its password and its other roles. All minors of etcd have the same format.
func admitAgent(tx *bolt.Tx) error {
	if b := tx.Bucket(schema.Auth.Name()); b == nil || string(b.Get(schema.AuthEnabledKeyName)) != "\x01" {
		return nil
	}
	users, err := tx.CreateBucketIfNotExists(schema.AuthUsers.Name())
	if err != nil {
		return fmt.Errorf("open the users: %w", err)
	}
	roles, err := tx.CreateBucketIfNotExists(schema.AuthRoles.Name())
	if err != nil {
		return fmt.Errorf("open the roles: %w", err)
	}
	if roles.Get([]byte(rootRole)) == nil {
		if err := putMessage(roles, rootRole, &authpb.Role{Name: []byte(rootRole)}); err != nil {
			return err
		}
	}
	user := &authpb.User{Name: []byte(agentUser), Options: &authpb.UserAddOptions{NoPassword: true}}
	if raw := users.Get([]byte(agentUser)); raw != nil {
		user = &authpb.User{}
		if err := proto.Unmarshal(raw, user); err != nil {
			return fmt.Errorf("read user %s: %w", agentUser, err)
		}
	}
	if slices.Contains(user.Roles, rootRole) {
		return nil
	}
	user.Roles = append(user.Roles, rootRole)
	slices.Sort(user.Roles) // etcd searches them as sorted
	return putMessage(users, agentUser, user)
}

func putMessage(bucket *bolt.Bucket, key string, m proto.Message) error {
	raw, err := proto.Marshal(m)
	if err == nil {
		err = bucket.Put([]byte(key), raw)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}
