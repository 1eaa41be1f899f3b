package datadir

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
)

// version is a minor of etcd. The zero version is the newest.
type version struct{ major, minor int64 }

// v37 starts from the log and the backend alone; the minors before it also need a .snap file.
var v37 = version{3, 7}

func parseMinor(s string) (version, error) {
	if s == "" {
		return version{}, nil
	}
	var v version
	if _, err := fmt.Sscanf(s, "%d.%d", &v.major, &v.minor); err != nil {
		return v, fmt.Errorf("etcd version %q: want major.minor: %w", s, err)
	}
	return v, nil
}

func (v version) needsSnapFile() bool {
	return v != version{} && (v.major < v37.major || v.major == v37.major && v.minor < v37.minor)
}

// lessThan says whether the storage version that the backend names is of a later minor than v.
func (v version) lessThan(storage string) bool {
	if (v == version{}) || storage == "" {
		return false
	}
	s, err := semver.NewVersion(storage)
	if err != nil {
		return true // not a version that any etcd we know writes
	}
	return v.major < s.Major || v.major == s.Major && v.minor < s.Minor
}
