package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/access"
	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/review"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Paths of the actions.
const (
	snapshotsPath = "/v1/snapshots"
	stepDownPath  = "/v1/step-down"
	defragPath    = "/v1/defragment"
	// stepDownToPath is where an agent forwards a step-down that names the next leader. An agent of an earlier version ignores the
	// name at stepDownPath, and moves the leadership to another member. It does not have this path.
	stepDownToPath = "/v1/step-down/to"
)

const (
	// snapshotTimeout bounds a backup on demand. A full backup of 8 GiB takes half an hour at 5 MB/s, and another one
	// can be in progress.
	snapshotTimeout = time.Hour
	// defragTimeout bounds a defragmentation on demand: one of 8 GiB may take nine minutes, and another one can be in progress.
	defragTimeout = 20 * time.Minute
	// maxForwarded is far above any response to an action, in bytes.
	maxForwarded = 64 << 10
)

// forwardedHeader names the member whose agent forwarded the request. Such a request is not forwarded again.
const forwardedHeader = "Druid-Forwarded-By"

// action is something that a caller can have the agent of the leader do. The agent of another member forwards it.
type action struct {
	path    string
	needs   review.Needs
	timeout time.Duration
	run     func(ctx context.Context, body []byte) (any, error)
	// forwardTo returns the path at the agent of the leader for a request with this body. nil means path.
	forwardTo func(body []byte) string
}

// pathFor returns the path to which a request with this body is forwarded.
func (one action) pathFor(body []byte) string {
	if one.forwardTo == nil {
		return one.path
	}
	return one.forwardTo(body)
}

// refusal is the response if nothing was done.
type refusal struct {
	Error string `json:"error"`
	// Leader is the name of the member whose agent to query instead, if it is known.
	Leader string `json:"leader,omitempty"`
}

var (
	// errRequest is returned for a request that no agent can serve.
	errRequest = errors.New("bad request")
	// errOlderAgent is returned if the agent of the leader does not have the path of the action. It then did nothing.
	errOlderAgent = errors.New("the leader's agent has an earlier version")
	// errNotLeading is returned for an action of the leader.
	errNotLeading = errors.New("this member does not lead")
)

func (a *Agent) newAccess() (*access.Access, error) {
	return access.New(access.Options{
		Kubernetes: a.options.Kubernetes, Secure: a.transport.Client != nil, Log: a.log,
		Names: func() []string {
			names := slices.Clone(a.live.Current().APIClients)
			if own := a.certificates.AgentName(); own != "" {
				names = append(names, own)
			}
			return names
		},
		Refuse: func(w http.ResponseWriter, r *http.Request, code int, why string) {
			a.answer(w, r, code, refusal{Error: why})
		},
	})
}

// actions serves what needs a known caller.
func (a *Agent) actions() *http.ServeMux {
	c := a.options.Config
	mux := http.NewServeMux()
	ofCluster := review.Needs{Verb: "patch", Group: "etcd.druid.dev", Resource: "etcdclusters", Namespace: c.Namespace, Name: c.Cluster}
	for _, one := range []action{
		{
			path: snapshotsPath, timeout: snapshotTimeout, run: a.snapshot,
			needs: review.Needs{Verb: "create", Group: "etcd.druid.dev", Resource: "etcdsnapshots", Namespace: c.Namespace},
		},
		{path: stepDownPath, timeout: duties.StepDownTimeout, run: a.stepDown, needs: ofCluster, forwardTo: stepDownAt},
		{path: stepDownToPath, timeout: duties.StepDownTimeout, run: a.stepDownTo, needs: ofCluster},
		{path: defragPath, timeout: defragTimeout, run: a.defragment, needs: ofCluster},
	} {
		mux.HandleFunc("POST "+one.path, a.access.Guard(one.needs, a.act(one)))
	}
	return mux
}

// act runs an action, or sends it to the agent of the leader.
func (a *Agent) act(one action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			a.answer(w, r, http.StatusBadRequest, refusal{Error: "read the request: " + err.Error()})
			return
		}
		if err := transport.TakeUpTo(w, one.timeout); err != nil {
			a.answer(w, r, http.StatusInternalServerError, refusal{Error: err.Error()})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), one.timeout)
		defer cancel()
		result, err := one.run(ctx, body)
		switch {
		case err == nil:
			a.answer(w, r, http.StatusOK, result)
		case errors.Is(err, errRequest), errors.Is(err, backups.ErrKind), errors.Is(err, duties.ErrNoVoter):
			a.answer(w, r, http.StatusBadRequest, refusal{Error: err.Error()})
		case errors.Is(err, duties.ErrNoSuccessor), errors.Is(err, duties.ErrSuccessor), errors.Is(err, duties.ErrRefused):
			a.answer(w, r, http.StatusConflict, refusal{Error: err.Error()})
		case errors.Is(err, backups.ErrIdle), errors.Is(err, errNotLeading):
			a.elsewhere(ctx, w, r, one, body, err)
		default:
			a.answer(w, r, http.StatusInternalServerError, refusal{Error: err.Error()})
		}
	}
}

// snapshot makes a backup on demand. With a retention by count, each new full backup can delete an older one.
func (a *Agent) snapshot(ctx context.Context, body []byte) (any, error) {
	var request struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, fmt.Errorf("%w: want {\"type\":\"Full\"} or {\"type\":\"Delta\"}: %w", errRequest, err)
	}
	return a.backups.Snapshot(ctx, request.Type)
}

// stepDown moves the leadership to another voter: to the one in the request, or without one to the best.
func (a *Agent) stepDown(ctx context.Context, body []byte) (any, error) {
	var request struct {
		Member string `json:"member"`
	}
	if len(bytes.TrimSpace(body)) > 0 {
		// A member that is not understood must not move the leadership to any.
		if err := json.Unmarshal(body, &request); err != nil || request.Member == "" {
			return nil, fmt.Errorf("%w: want no body, or {\"member\":\"<name of the member that is to lead>\"}", errRequest)
		}
	}
	to, err := duties.TransferTo(ctx, a.clients.Dial, a.local(), request.Member)
	switch {
	case err != nil:
		return nil, err
	case to.ID == 0:
		return nil, errNotLeading
	}
	a.log.InfoContext(ctx, "leadership transferred", "memberID", leases.FormatID(to.ID))
	return duties.TransferredTo(to), nil
}

// stepDownTo is stepDown for a request that names the next leader.
func (a *Agent) stepDownTo(ctx context.Context, body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, fmt.Errorf("%w: want {\"member\":\"<name of the member that is to lead>\"}", errRequest)
	}
	return a.stepDown(ctx, body)
}

// stepDownAt is the path to which a step-down is forwarded: one with a body names the next leader.
func stepDownAt(body []byte) string {
	if len(bytes.TrimSpace(body)) == 0 {
		return stepDownPath
	}
	return stepDownToPath
}

// defragment defragments one member. Only the leader's agent does so, one member at a time.
func (a *Agent) defragment(ctx context.Context, body []byte) (any, error) {
	var request struct {
		Member string `json:"member"`
	}
	if err := json.Unmarshal(body, &request); err != nil || request.Member == "" {
		return nil, fmt.Errorf("%w: want {\"member\":\"<name of the member>\"}", errRequest)
	}
	state, _ := a.observer.State()
	if !state.Reachable || state.Status.Leader != state.Status.MemberID {
		return nil, errNotLeading
	}
	done, err := a.duties.DefragmentNow(ctx, request.Member)
	if err != nil {
		return nil, err
	}
	return struct {
		Member       string  `json:"member"`
		Result       string  `json:"result"`
		Seconds      float64 `json:"seconds"`
		DBSizeBefore int64   `json:"dbSizeBefore"`
		DBSize       int64   `json:"dbSize,omitempty"`
	}{done.Member, done.Result(), done.Took.Seconds(), done.Before.Size, done.After.Size}, nil
}

// elsewhere forwards the request to the agent of the leader, or names the leader in its response. If this member leads,
// it returns the error: there is nothing to do, or not yet.
func (a *Agent) elsewhere(ctx context.Context, w http.ResponseWriter, r *http.Request, one action, body []byte, idle error) {
	state, _ := a.observer.State()
	leads := state.Status.Leader
	if !state.Reachable || leads == 0 || leads == state.Status.MemberID {
		a.answer(w, r, http.StatusConflict, refusal{Error: idle.Error()})
		return
	}
	name, err := a.leaderName(ctx, state.Status)
	if err != nil {
		a.answer(w, r, http.StatusMisdirectedRequest, refusal{
			Error: fmt.Sprintf("%v; the leader is member %s, but its name cannot be read: %v", idle, leases.FormatID(leads), err),
		})
		return
	}
	if r.Header.Get(forwardedHeader) != "" || a.certificates.AgentName() == "" {
		a.answer(w, r, http.StatusMisdirectedRequest, refusal{Error: idle.Error() + ": send the request to the agent of the leader, " + name, Leader: name})
		return
	}
	switch err := a.forward(ctx, w, name, one, body); {
	case errors.Is(err, errOlderAgent):
		a.answer(w, r, http.StatusNotImplemented, refusal{
			Error: fmt.Sprintf("nothing was done: the agent of member %s, the leader, has an earlier version, which cannot do this. "+
				"Wait until druid has updated the agents", name),
			Leader: name,
		})
	case err != nil:
		a.answer(w, r, http.StatusBadGateway, refusal{
			Error: fmt.Sprintf("%v, and the agent of member %s, the leader, did not answer, so whether it acted is unknown: %v", idle, name, err), Leader: name,
		})
	}
}

// forward sends the request to the agent of the leader in the name of this agent, which has checked the caller. The
// caller's token stays here. It returns an error if nothing was written to w.
func (a *Agent) forward(ctx context.Context, w http.ResponseWriter, leader string, one action, body []byte) error {
	path := one.pathFor(body)
	url := transport.URL(true, a.host(leader), a.options.Config.APIPort) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set(forwardedHeader, a.options.Config.Member)
	response, err := a.transport.AgentClient(one.timeout).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusNotFound { // no action answers so
		return errOlderAgent
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxForwarded))
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	a.log.InfoContext(ctx, "request forwarded to the leader", "path", path, "leader", leader, "status", response.StatusCode)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(answer) // a client that went away needs no answer
	return nil
}

func (a *Agent) leaderName(ctx context.Context, status membership.Status) (string, error) {
	view, err := membership.Observe(ctx, a.clients.Dial, membership.Query{
		Endpoints: []string{a.local()}, ClusterID: status.ClusterID, Timeout: lookTimeout,
	})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(view.Members, func(m membership.Member) bool { return m.ID == status.Leader })
	if i < 0 {
		return "", errors.New("the member list does not contain the leader")
	}
	return view.Members[i].Name, nil
}

func (a *Agent) answer(w http.ResponseWriter, r *http.Request, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.log.DebugContext(r.Context(), "response not written", "err", err)
	}
}
