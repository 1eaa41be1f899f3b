package leases

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Client is what is asked of the Leases of one namespace. NewClient's is the agent's; client-go's typed one, which druid has
// anyhow, satisfies it too.
type Client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*coordinationv1.Lease, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// NewClient returns a Client over client-go's REST client that knows Leases and no other kind. The typed client links and
// registers every API of Kubernetes for the sake of one, which an agent next to each etcd would keep in memory.
func NewClient(config *rest.Config, namespace string) (Client, error) {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Leases: %w", err)
	}
	// What every API answers besides its own kinds: Status, and the end of a watch.
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

// of is the Leases of our namespace, as a request asks for them.
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

// Watch keeps the limits of the client: the time-out of a request is none of a watch.
func (c *restClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.of(c.kubernetes.Get()).VersionedParams(&opts, c.options).Watch(ctx)
}
