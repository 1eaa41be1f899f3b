package leases

import (
	"fmt"
	"strconv"
	"strings"
)

// annotationSavedAuth of the Lease of full backups is <revision of users and roles> <on or off> <key of the full backup>.
const annotationSavedAuth = Prefix + "auth-saved"

const authOn, authOff = "on", "off"

// BackupAuth is the least that a full backup has of authentication in etcd.
type BackupAuth struct {
	// Object is the key of the full backup.
	Object string
	// Revision is etcd's revision of users and roles, and Enabled says that authentication was on.
	Revision uint64
	Enabled  bool
}

func (a BackupAuth) String() string {
	if a.Object == "" {
		return ""
	}
	state := authOff
	if a.Enabled {
		state = authOn
	}
	return fmt.Sprint(a.Revision, " ", state, " ", a.Object)
}

// backupAuth reads what String wrote. What another version wrote differently is not known: then another full backup is taken.
func (d *decoder) backupAuth(key string) BackupAuth {
	parts := strings.SplitN(d.annotations[key], " ", 3)
	if len(parts) != 3 {
		return BackupAuth{}
	}
	revision, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil || parts[1] != authOn && parts[1] != authOff {
		return BackupAuth{}
	}
	return BackupAuth{Object: parts[2], Revision: revision, Enabled: parts[1] == authOn}
}
