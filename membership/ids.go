package membership

import (
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/types"
	etcdmembership "go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
)

// ExpectedIDs are the IDs that etcd will give to the only member and to the cluster when name at peerURL forms a new
// cluster under token. etcd's own code computes them.
func ExpectedIDs(name, peerURL, token string) (memberID, clusterID uint64, err error) {
	urls, err := types.NewURLsMap(name + "=" + peerURL)
	if err != nil {
		return 0, 0, fmt.Errorf("peer URL %s of %s: %w", peerURL, name, err)
	}
	cluster, err := etcdmembership.NewClusterFromURLsMap(zap.NewNop(), token, urls)
	if err != nil {
		return 0, 0, fmt.Errorf("IDs of %s at %s: %w", name, peerURL, err)
	}
	return uint64(cluster.MemberByName(name).ID), uint64(cluster.ID()), nil
}
