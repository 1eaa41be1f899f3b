package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Results of Store calls other than success and ErrUnreadable. Every other error means that the answer is unknown: the
// Kubernetes API could not be reached, timed out, or denied the call for another reason. Whether a write that ended
// with such an error took effect is unknown too.
var (
	// ErrAbsent: the Lease does not exist. This is no evidence that it never existed.
	ErrAbsent = errors.New("no such Lease")
	// ErrForbidden: the API server denies access. This is evidence of nothing else.
	ErrForbidden = errors.New("access to the Lease is denied")
	// ErrConflict: a compare-and-set failed because the Lease was changed since the version was read. Nothing was
	// written.
	ErrConflict = errors.New("the Lease was changed by another client")
)

// callTimeout bounds one call to the Kubernetes API. A healthy API server answers in milliseconds. Five seconds cover
// the failover of a load balancer in front of it, and are a third of the renewal interval.
const callTimeout = 5 * time.Second

// Version is the version of a Lease for a compare-and-set. It is only compared for equality.
type Version string

// Store reads and writes the Leases of one cluster, always live and without a cache. It creates and deletes nothing.
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

// UpdateRecord writes every field of record if the Lease still is at version. Otherwise it changes nothing and returns
// ErrConflict. Other content of the Lease stays unchanged. It returns the new version.
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

// Marks reads only the part of a member Lease that its own agent does not write, so that the agent's content never
// makes it unreadable. The member's agent needs this to overwrite the rest, and the leader's agent to see whether the
// member is to be removed.
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
		Removal:      ParseRemovalRequest(lease.Annotations[AnnotationRemoval]),
		Disk:         ParseDiskReport(lease.Annotations[annotationDisk]),
		Differs:      parseDifference(lease.Annotations[annotationDiffers]),
	}
}

// PatchMember writes p into the Lease of the member called name and returns the Lease afterwards. The answer includes
// what druid wrote there, so that a renewal needs no GET.
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

// BindMember writes to the Lease of the member called name which Pod and which volume belong to the member, if the Lease
// still is at version. Otherwise it changes nothing and returns ErrConflict.
func (s *Store) BindMember(ctx context.Context, name string, version Version, podUID, volumeUID string) error {
	_, err := s.annotate(ctx, name, version, annotationPatch{AnnotationPodUID: &podUID, AnnotationVolumeUID: &volumeUID})
	return err
}

// AnnounceRepair writes to the Lease of the member called name how druid repairs the member, if the Lease still is at
// version. Otherwise it changes nothing and returns ErrConflict. The zero Repairing removes the announcement.
func (s *Store) AnnounceRepair(ctx context.Context, name string, version Version, r Repairing) error {
	value, err := r.Encode()
	if err != nil {
		return fmt.Errorf("patch Lease %s: %w", name, err)
	}
	annotations := annotationPatch{}
	annotations.exactly(AnnotationRepairing, value)
	_, err = s.annotate(ctx, name, version, annotations)
	return err
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

// annotate changes annotations of a Lease if it still is at version. Otherwise it changes nothing and returns ErrConflict.
func (s *Store) annotate(ctx context.Context, name string, version Version, annotations annotationPatch) (*coordinationv1.Lease, error) {
	if version == "" {
		return nil, fmt.Errorf("patch Lease %s: a compare-and-set needs the version that was read", name)
	}
	return s.patch(ctx, name, leasePatch{Metadata: patchMetadata{ResourceVersion: version, Annotations: annotations}})
}

// classify joins the sentinel to the error, whose text has more detail for users.
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

// watchTimeout is the minimum time before the server ends a watch. client-go's reflectors use the same, with a random
// addition of up to as much, so that a fleet does not reconnect at the same time.
const watchTimeout = 5 * time.Minute

// WatchRecord calls seen with each version of the cluster record, first with the present one, until the server ends
// the watch (nil: start again), the watch fails, or ctx ends. It watches this Lease by name, which the API server
// indexes, so that no renewal of another Lease reaches the watcher. A version that was seen is only a hint: read the
// record live before you act on it.
func (s *Store) WatchRecord(ctx context.Context, seen func(Version)) error {
	return s.watch(ctx, RecordName(s.cluster), func(lease *coordinationv1.Lease) { seen(Version(lease.ResourceVersion)) })
}

// watch calls seen with the Lease called name whenever it changes.
func (s *Store) watch(ctx context.Context, name string, seen func(*coordinationv1.Lease)) error {
	seconds := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	w, err := s.leases.Watch(ctx, metav1.ListOptions{
		FieldSelector:  fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		TimeoutSeconds: &seconds,
	})
	if err != nil {
		return fmt.Errorf("watch Lease %s: %w", name, classify(err))
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			lease, isLease := event.Object.(*coordinationv1.Lease)
			if !isLease || event.Type == watch.Error {
				return fmt.Errorf("watch Lease %s: %s: %v", name, event.Type, event.Object)
			}
			seen(lease)
		}
	}
}

// Client has the operations on the Leases of one namespace. The agent uses that of NewClient. The typed client of
// client-go, which druid uses anyway, implements it too.
type Client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*coordinationv1.Lease, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// NewClient returns a Client over client-go's REST client that knows Leases and no other kind. The typed client links
// and registers every API of Kubernetes, which the agent next to each etcd would keep in memory.
func NewClient(config *rest.Config, namespace string) (Client, error) {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Leases: %w", err)
	}
	// The scheme also needs what every API answers: Status, and the end of a watch.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &coordinationv1.SchemeGroupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	kubernetes, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	return &restClient{kubernetes: kubernetes, namespace: namespace, options: runtime.NewParameterCodec(scheme)}, nil
}

type restClient struct {
	kubernetes rest.Interface
	namespace  string
	options    runtime.ParameterCodec
}

// of restricts a request to the Leases of the namespace.
func (c *restClient) of(r *rest.Request) *rest.Request {
	return r.Namespace(c.namespace).Resource("leases")
}

func (c *restClient) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.of(c.kubernetes.Get()).Name(name).VersionedParams(&opts, c.options).Do(ctx).Into(lease)
	return lease, err
}

func (c *restClient) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string,
) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.of(c.kubernetes.Patch(kind)).Name(name).SubResource(subresources...).
		VersionedParams(&opts, c.options).Body(data).Do(ctx).Into(lease)
	return lease, err
}

// Watch keeps the limits of the client, but not its request timeout, which does not apply to a watch.
func (c *restClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.of(c.kubernetes.Get()).VersionedParams(&opts, c.options).Watch(ctx)
}
