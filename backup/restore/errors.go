package restore

import (
	"errors"
	"fmt"
)

var (
	// ErrNotEmpty: there is something in the data directory. It was not touched.
	ErrNotEmpty = errors.New("data directory is not empty")
	// ErrBusy: another restore into the same data directory is running.
	ErrBusy = errors.New("another restore is running")
	// ErrForeign: where this restore would write stands what no restore made. It was not touched.
	ErrForeign = errors.New("not made by a restore")
	// ErrSpace: the disk is too small.
	ErrSpace = errors.New("not enough space")
	// ErrSpaceBeside is an ErrSpace that only shows when all was read: what is alive does not fit next to the full that was fetched.
	ErrSpaceBeside = fmt.Errorf("%w next to the full that was fetched", ErrSpace)
	// ErrVersion: the etcd that is to run on the data cannot read it.
	ErrVersion = errors.New("etcd version")
	// ErrQuota: the database is larger than the quota of the etcd that is to run on it.
	ErrQuota = errors.New("quota")
	// ErrAuth: authentication is on in the data.
	ErrAuth = errors.New("authentication is on")
	// ErrTooNew: the full already holds more than the target, and cannot be cut back to it. An older full must be taken:
	// plan again without this one.
	ErrTooNew = errors.New("full is too new for the target")
	// ErrShort: the objects end before what was planned.
	ErrShort = errors.New("backup ends early")
	// ErrSwapped: an object is not the one that its name promises.
	ErrSwapped = errors.New("another object stands under this name")
	// ErrFork: two objects report different histories of one lineage.
	ErrFork = errors.New("fork inside lineage")
)

// GapError says that revisions From to To are in no object of the plan.
type GapError struct {
	From, To int64
	// After and Before are the keys of the objects on both sides of the hole.
	After, Before string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("revisions %d to %d are missing between %s and %s", e.From, e.To, e.After, e.Before)
}
