package leases

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Leadership is what the leader's Lease says.
type Leadership struct {
	Version Version
	// Holder is the name of the Pod whose agent leads, empty for no one.
	Holder string
	// Duration for which it is held without a renewal, 0 where it says none.
	Duration time.Duration
	// Transitions counts the holders so far, for people.
	Transitions int32

	uid types.UID
	// renewed is another machine's clock, in microseconds: it is only ever compared for equality.
	renewed int64
}

// sameTerm says whether other is what l is, without a renewal between them. Labels and annotations may have changed.
func (l Leadership) sameTerm(other Leadership) bool {
	l.Version = other.Version
	return l == other
}

// Leadership reads the leader's Lease.
func (s *Store) Leadership(ctx context.Context) (Leadership, error) {
	lease, err := s.get(ctx, LeaderName(s.cluster))
	if err != nil {
		return Leadership{}, err
	}
	return leadershipOf(lease), nil
}

// Lead makes holder the holder of the leader's Lease, for duration from now on, if the Lease still is at the version of
// was, else nothing and ErrConflict. An empty holder gives it back.
func (s *Store) Lead(ctx context.Context, was Leadership, holder string, duration time.Duration) (Leadership, error) {
	name := LeaderName(s.cluster)
	if was.Version == "" {
		return Leadership{}, fmt.Errorf("patch Lease %s: a compare-and-set needs the version that was read", name)
	}
	now := metav1.NowMicro()
	seconds := int32(duration / time.Second)
	spec := &patchSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}
	if holder != was.Holder && holder != "" {
		transitions := was.Transitions + 1
		spec.AcquireTime, spec.LeaseTransitions = &now, &transitions
	}
	lease, err := s.patch(ctx, name, leasePatch{Metadata: patchMetadata{ResourceVersion: was.Version}, Spec: spec})
	if err != nil {
		return Leadership{}, err
	}
	return leadershipOf(lease), nil
}

func leadershipOf(lease *coordinationv1.Lease) Leadership {
	l := Leadership{Version: Version(lease.ResourceVersion), uid: lease.UID}
	spec := lease.Spec
	if spec.HolderIdentity != nil {
		l.Holder = *spec.HolderIdentity
	}
	if spec.LeaseDurationSeconds != nil {
		l.Duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if spec.LeaseTransitions != nil {
		l.Transitions = *spec.LeaseTransitions
	}
	if spec.RenewTime != nil {
		l.renewed = spec.RenewTime.UnixMicro()
	}
	return l
}
