package leader

import (
	"context"
	"errors"
	"slices"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// listOf is the view as the record publishes it.
func listOf(view membership.View) leases.MemberList {
	list := leases.MemberList{RaftTerm: view.RaftTerm, RaftIndex: view.RaftIndex}
	for _, m := range view.Members {
		listed := leases.ListedMember{ID: leases.FormatID(m.ID), Name: m.Name, Learner: m.Learner}
		if len(m.PeerURLs) > 0 {
			listed.PeerURL = m.PeerURLs[0]
		}
		list.Members = append(list.Members, listed)
	}
	return list
}

// sameMembers says whether two lists report the same members: the raft position moves all the time.
func sameMembers(published *leases.MemberList, list leases.MemberList) bool {
	return published != nil && slices.Equal(published.Members, list.Members)
}

// publish writes the list into the record when it changed. The record must be one of our own raft group, and no list
// that was read at a later raft position is overwritten: a former leader may be slow.
func (r *round) publish(ctx context.Context, self Cluster, list leases.MemberList) error {
	published := r.record.MemberList
	switch {
	case sameMembers(published, list), r.record.Phase != leases.PhaseFormed, r.record.ClusterID != self.ClusterID:
		return nil
	case published != nil && published.RaftTerm > list.RaftTerm:
		return nil
	}
	record := r.record
	record.MemberList = &list
	crash.Before("publish-list")
	version, err := r.Store.UpdateRecord(ctx, r.version, record)
	crash.After("publish-list")
	if err != nil {
		r.version = "" // read it again: someone else wrote, or we do not know whether we did
		if errors.Is(err, leases.ErrConflict) {
			return nil
		}
		return err
	}
	r.record, r.version = record, version
	r.Log.InfoContext(ctx, "member list published", "members", len(list.Members), "revision", list.RaftIndex)
	return nil
}
