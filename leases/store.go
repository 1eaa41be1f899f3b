package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a call of a Store can end with, besides success and ErrUnreadable. Every other error means that the answer is
// unknown: the Kubernetes API could not be reached, timed out, or refused for a reason of its own. Whether a write that
// ended so took effect is unknown too.
var (
	// ErrAbsent: the Lease does not exist. It is no evidence that it never existed.
	ErrAbsent = errors.New("no such Lease")
	// ErrForbidden: the API server refuses us. It is no evidence of anything but that.
	ErrForbidden = errors.New("access to the Lease is refused")
	// ErrConflict: a compare-and-set was lost; someone else wrote since the version was read. Nothing was written.
	ErrConflict = errors.New("the Lease was changed by another")
)

// callTimeout bounds one call to the Kubernetes API. A healthy API server answers in milliseconds; five seconds span the
// fail-over of a load balancer in front of it, and are a third of the renewal interval.
const callTimeout = 5 * time.Second

// Version is the state of a Lease that a compare-and-set names. It is only ever compared for equality.
type Version string

// Store reads and writes the Leases of one cluster, always live: it holds no cache. It creates and deletes nothing.
type Store struct {
	leases  Client
	cluster string
	timeout time.Duration
}

// NewStore returns the Store of a cluster over the Leases of its namespace.
func NewStore(leases Client, cluster string) *Store {
	return &Store{leases: leases, cluster: cluster, timeout: callTimeout}
}

// Record reads the cluster record.
func (s *Store) Record(ctx context.Context) (Record, Version, error) {
	lease, err := s.get(ctx, RecordName(s.cluster))
	if err != nil {
		return Record{}, "", err
	}
	record, err := DecodeRecord(lease)
	if err != nil {
		return Record{}, "", err
	}
	return record, Version(lease.ResourceVersion), nil
}

// UpdateRecord writes every field of record if the Lease still is at version, else nothing and ErrConflict. What the Lease
// carries besides the record stays as it is. It returns the version that the write made.
func (s *Store) UpdateRecord(ctx context.Context, version Version, record Record) (Version, error) {
	name := RecordName(s.cluster)
	if version == "" {
		return "", fmt.Errorf("update Lease %s: a compare-and-set needs the version that was read", name)
	}
	patch, err := record.patch(version)
	if err != nil {
		return "", fmt.Errorf("update Lease %s: %w", name, err)
	}
	lease, err := s.patch(ctx, name, patch)
	if err != nil {
		return "", err
	}
	return Version(lease.ResourceVersion), nil
}

// Member reads the Lease of the member called name.
func (s *Store) Member(ctx context.Context, name string) (Member, error) {
	lease, err := s.get(ctx, name)
	if err != nil {
		return Member{}, err
	}
	return DecodeMember(lease)
}

// Marks reads of a member's Lease only what others than its own agent write there, which never makes it unreadable: what the
// member's agent needs to write over the rest, and the leader's agent to see whether the member is to go.
func (s *Store) Marks(ctx context.Context, name string) (Member, error) {
	lease, err := s.get(ctx, name)
	if err != nil {
		return Member{}, err
	}
	return marksOf(lease), nil
}

func marksOf(lease *coordinationv1.Lease) Member {
	return Member{
		LeaseVersion: Version(lease.ResourceVersion),
		PodUID:       lease.Annotations[AnnotationPodUID],
		VolumeUID:    lease.Annotations[AnnotationVolumeUID],
		Retire:       ParseRetirement(lease.Annotations[AnnotationRetire]),
	}
}

// PatchMember writes what p says into the Lease of the member called name and returns what the Lease says after that:
// the answer carries what druid wrote there, so that a renewal costs no GET.
func (s *Store) PatchMember(ctx context.Context, name string, p MemberPatch) (Member, error) {
	patch, err := p.encode()
	if err != nil {
		return Member{}, fmt.Errorf("patch Lease %s: %w", name, err)
	}
	lease, err := s.patch(ctx, name, patch)
	if err != nil {
		return Member{}, err
	}
	return DecodeMember(lease)
}

func (s *Store) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	lease, err := s.leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Lease %s: %w", name, classify(err))
	}
	return lease, nil
}

func (s *Store) patch(ctx context.Context, name string, patch leasePatch) (*coordinationv1.Lease, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch Lease %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	lease, err := s.leases.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch Lease %s: %w", name, classify(err))
	}
	return lease, nil
}

// classify joins the sentinel to the error, whose own words report a person more.
func classify(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	default:
		return err
	}
}
