package membership

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Content is what one member holds at a revision, as far as a hash reports.
type Content struct {
	MemberID uint64
	// Revision that was hashed, and CompactRevision, below which history is gone. Hashes report something of each other only where both
	// are equal.
	Revision, CompactRevision int64
	Hash                      uint32
}

// ReadContent asks the member at endpoint for a hash of all that it holds at revision. It reads its whole database.
func ReadContent(ctx context.Context, client *clientv3.Client, endpoint string, clusterID uint64, revision int64) (Content, error) {
	r, err := client.HashKV(ctx, endpoint, revision)
	if err != nil {
		return Content{}, fmt.Errorf("hash of revision %d: %w", revision, err)
	}
	if id := r.Header.GetClusterId(); id != clusterID {
		return Content{}, fmt.Errorf("hash of revision %d: %w: %x", revision, ErrOtherCluster, id)
	}
	// 3.5 does not say which revision it hashed.
	if r.HashRevision != 0 && r.HashRevision != revision {
		return Content{}, fmt.Errorf("hash of revision %d: the member hashed revision %d", revision, r.HashRevision)
	}
	return Content{MemberID: r.Header.GetMemberId(), Revision: revision, CompactRevision: r.CompactRevision, Hash: r.Hash}, nil
}

// Sameness of what members hold.
type Sameness string

// Different only where two hashes that can be compared differ; Incomparable where one is of another revision or compaction.
const (
	Same         Sameness = "Same"
	Different    Sameness = "Different"
	Incomparable Sameness = "Incomparable"
)

// Compare what members hold. No content at all is Incomparable.
func Compare(all []Content) Sameness {
	if len(all) == 0 {
		return Incomparable
	}
	found := Same
	for _, c := range all[1:] {
		switch {
		case c.Revision != all[0].Revision || c.CompactRevision != all[0].CompactRevision:
			found = Incomparable
		case c.Hash != all[0].Hash:
			return Different
		}
	}
	return found
}

// EnableDowngrade announces to the cluster that its members are going to run target, as major.minor: from then on it lets
// them join, and brings the storage of all members to that format. It is checked by etcd first, and may be called again.
func EnableDowngrade(ctx context.Context, client *clientv3.Client, target string) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeValidate, target+".0"); err != nil {
		return fmt.Errorf("validate the downgrade to %s: %w", target, err)
	}
	if _, err := client.Downgrade(ctx, clientv3.DowngradeEnable, target+".0"); err != nil {
		return fmt.Errorf("enable the downgrade to %s: %w", target, err)
	}
	return nil
}

// CancelDowngrade takes the announcement back.
func CancelDowngrade(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeCancel, ""); err != nil {
		return fmt.Errorf("cancel the downgrade: %w", err)
	}
	return nil
}
