package druid

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// requestsInterval is the time between two reads of Certificates that are as they should be. While one is not, it is
// certificatesPause. druid does not watch them: a watch of a kind that the API server does not know keeps druid from
// starting, and fails again and again when cert-manager is removed.
const requestsInterval = 5 * time.Minute

// seenRequest is a Certificate as druid last read it.
type seenRequest struct {
	// live is nil if it does not exist, and err says why it could not be read.
	live      *unstructured.Unstructured
	notServed bool
	err       error
	// target is the state of the Secret if the Certificate does not exist.
	target  policy.TargetState
	problem string
}

// requestMemory keeps the Certificates of each cluster, so that a cluster at rest costs few requests.
type requestMemory struct {
	mu   sync.Mutex
	seen map[types.UID]seenRequests
}

type seenRequests struct {
	at     time.Time
	byName map[string]seenRequest
}

func (m *requestMemory) get(cluster types.UID) seenRequests {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[cluster]
}

func (m *requestMemory) set(cluster types.UID, s seenRequests) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = map[types.UID]seenRequests{}
	}
	m.seen[cluster] = s
}

func (m *requestMemory) forget(cluster types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, cluster)
}

// plannedRequest is a Certificate that the spec asks for.
type plannedRequest struct {
	plane manifests.Plane
	manifests.Applied
}

func (r *Reconciler) plannedRequests(o *observation) ([]plannedRequest, error) {
	var all []plannedRequest
	for _, p := range manifests.IssuedByCertManager(o.cluster) {
		certificates, err := manifests.CertManagerCertificates(o.cluster, p, r.manifests.ClusterDomain)
		if err != nil {
			return nil, err
		}
		for _, c := range certificates {
			all = append(all, plannedRequest{p, c})
		}
	}
	return all, nil
}

// observeRequests compares the Certificates with what they should be. It reads them seldom, and again after druid wrote
// one or while something is wrong. What fails is reported in the condition and hinders nothing else.
func (r *Reconciler) observeRequests(ctx context.Context, o *observation) {
	planned, err := r.plannedRequests(o)
	if err != nil {
		o.observed.Requests = []policy.Request{{State: policy.RequestUnread, Problem: oneLine(err.Error())}}
	}
	if len(planned) == 0 {
		return
	}
	seen := r.memory.requests.get(o.cluster.UID)
	requests, good := judgeRequests(o, seen, planned)
	pause := requestsInterval
	if !good {
		pause = certificatesPause
	}
	if r.now().Sub(seen.at) >= pause {
		seen = r.readRequests(ctx, o, planned)
		r.memory.requests.set(o.cluster.UID, seen)
		if requests, good = judgeRequests(o, seen, planned); good {
			pause = requestsInterval
		} else {
			pause = certificatesPause
		}
	}
	o.observed.Requests = requests
	o.lookAgain(pause - r.now().Sub(seen.at))
}

// judgeRequests says how each Certificate is, and whether all are issued.
func judgeRequests(o *observation, seen seenRequests, planned []plannedRequest) (all []policy.Request, good bool) {
	good = true
	for _, p := range planned {
		s, known := seen.byName[p.Name]
		request := policy.Request{Plane: string(p.plane), Name: p.Name, State: policy.RequestUnread}
		if known {
			request = judgeRequest(o, s, p)
		}
		good = good && request.State == policy.RequestIssued
		all = append(all, request)
	}
	return all, good
}

func judgeRequest(o *observation, s seenRequest, p plannedRequest) policy.Request {
	request := policy.Request{Plane: string(p.plane), Name: p.Name}
	switch {
	case s.notServed:
		request.State = policy.RequestNotServed
	case s.err != nil:
		request.State, request.Problem = policy.RequestUnread, oneLine(s.err.Error())
	case s.live == nil:
		request.State, request.Target, request.Problem = policy.RequestAbsent, s.target, s.problem
	case !ours(o.cluster, s.live):
		request.State, request.Problem = policy.RequestForeign, (&foreignError{kind: p.Kind.Kind, name: p.Name}).Error()
	default:
		held, err := p.HeldBy(s.live)
		issued, why := issuedByNow(s.live)
		switch {
		case err != nil:
			request.State, request.Problem = policy.RequestUnread, oneLine(err.Error())
		case !held:
			request.State = policy.RequestOutdated
		case !issued:
			request.State, request.Problem = policy.RequestAwaited, oneLine(why)
		default:
			request.State = policy.RequestIssued
		}
	}
	return request
}

// issuedByNow reads condition Ready of a Certificate.
func issuedByNow(live *unstructured.Unstructured) (issued bool, why string) {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Ready" {
			why, _ = condition["message"].(string)
			return condition["status"] == string(metav1.ConditionTrue), why
		}
	}
	return false, ""
}

// readRequests reads all Certificates of the cluster with one request, and by name those that it lacks: an object of
// someone else has not the label.
func (r *Reconciler) readRequests(ctx context.Context, o *observation, planned []plannedRequest) seenRequests {
	seen := seenRequests{at: r.now(), byName: map[string]seenRequest{}}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(manifests.CertificateKind.GroupVersion().WithKind(manifests.CertificateKind.Kind + "List"))
	if err := r.live.List(ctx, list, client.InNamespace(o.cluster.Namespace), r.live.of(o.cluster.Name)); err != nil {
		for _, p := range planned {
			seen.byName[p.Name] = failedRead(p.Name, err)
		}
		return seen
	}
	for i := range list.Items {
		seen.byName[list.Items[i].GetName()] = seenRequest{live: &list.Items[i]}
	}
	for _, p := range planned {
		if _, known := seen.byName[p.Name]; !known {
			seen.byName[p.Name] = r.readRequest(ctx, o, p.Name)
		}
	}
	return seen
}

func (r *Reconciler) readRequest(ctx context.Context, o *observation, name string) seenRequest {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(manifests.CertificateKind)
	switch err := r.live.Get(ctx, key(o, name), live); {
	case err == nil:
		return seenRequest{live: live}
	case apierrors.IsNotFound(err) && !notServed(err):
		s := seenRequest{}
		s.target, s.problem = r.targetOf(ctx, o, name)
		return s
	default:
		return failedRead(name, err)
	}
}

func failedRead(name string, err error) seenRequest {
	return seenRequest{notServed: notServed(err), err: fmt.Errorf("read Certificate %s: %w", name, err)}
}

// notServed says whether the API server does not know the kind. If druid knew the kind before, the API server responds
// that it does not know the path.
func notServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// targetOf finds out whether the Secret that cert-manager is to write belongs to someone else.
func (r *Reconciler) targetOf(ctx context.Context, o *observation, name string) (policy.TargetState, string) {
	secret, err := r.patchNothing(ctx, o, name)
	switch {
	case apierrors.IsNotFound(err):
		return policy.TargetFree, ""
	case err != nil && !isForeign(err):
		return policy.TargetUnread, oneLine(err.Error())
	case err == nil && (ours(o.cluster, secret) ||
		secret.Annotations[manifests.AnnotationCertificateName] == name && secret.Labels[leases.LabelCluster] == o.cluster.Name):
		return policy.TargetFree, ""
	}
	return policy.TargetTaken, (&foreignError{kind: "Secret", name: name}).Error()
}

// requestCertificate writes a Certificate.
func (r *Reconciler) requestCertificate(ctx context.Context, o *observation, step policy.Step) error {
	planned, err := r.plannedRequests(o)
	if err != nil {
		return err
	}
	for _, p := range planned {
		if p.Name != step.Object {
			continue
		}
		// The next look reads what was written, and soon what cert-manager made of it.
		defer func() {
			r.memory.requests.forget(o.cluster.UID)
			o.lookAgain(control.StaleCachePause)
		}()
		crash.Before("request-certificate")
		err := r.applyOurs(ctx, o, p.Applied, policy.ObjectOutdated)
		crash.After("request-certificate")
		if notServed(err) {
			return nil // the next look reports it
		}
		return err
	}
	return nil // the spec does not have it any more
}
