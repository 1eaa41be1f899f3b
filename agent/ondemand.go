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

	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// snapshotsPath of backups on demand.
const snapshotsPath = "/v1/snapshots"

// snapshotTimeout bounds a backup on demand: a full of 8 GiB at 5 MB/s takes half an hour, and one may be under way.
const snapshotTimeout = time.Hour

// snapshotRequest is the body of POST /v1/snapshots.
type snapshotRequest struct {
	Type string `json:"type"`
}

// snapshotRefusal is its answer when nothing was saved.
type snapshotRefusal struct {
	Error string `json:"error"`
	// Leader is the ID of the member whose agent to ask instead, as far as it is known.
	Leader string `json:"leader,omitempty"`
}

// serveSnapshot saves on demand. An agent that does not lead asks the one that does.
func (a *Agent) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	var request snapshotRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&request); err != nil {
		a.answer(w, r, http.StatusBadRequest, snapshotRefusal{Error: "want {\"type\":\"Full\"} or {\"type\":\"Delta\"}: " + err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), snapshotTimeout)
	defer cancel()
	artifact, err := a.backups.Snapshot(ctx, request.Type)
	switch {
	case err == nil:
		a.answer(w, r, http.StatusOK, artifact)
	case errors.Is(err, backups.ErrKind):
		a.answer(w, r, http.StatusBadRequest, snapshotRefusal{Error: err.Error()})
	case errors.Is(err, backups.ErrIdle):
		a.refuse(ctx, w, r, request, err)
	default:
		a.answer(w, r, http.StatusInternalServerError, snapshotRefusal{Error: err.Error()})
	}
}

// refuse hands the request on to the leader's agent, unless that is us: then there is nothing to back up with, or not yet.
func (a *Agent) refuse(ctx context.Context, w http.ResponseWriter, r *http.Request, request snapshotRequest, idle error) {
	state, _ := a.observer.State()
	leads := state.Status.Leader
	switch {
	case !state.Reachable || leads == 0 || leads == state.Status.MemberID:
		a.answer(w, r, http.StatusConflict, snapshotRefusal{Error: idle.Error()})
		return
	case r.Header.Get(forwarded) != "":
		a.answer(w, r, http.StatusMisdirectedRequest, snapshotRefusal{Error: idle.Error(), Leader: leases.FormatID(leads)})
		return
	}
	if err := a.forward(ctx, w, state.Status, request); err != nil {
		refusal := snapshotRefusal{Error: "the leader's agent was not reached: " + err.Error(), Leader: leases.FormatID(leads)}
		a.answer(w, r, http.StatusBadGateway, refusal)
	}
}

// forwarded is the header of a request that an agent handed on. It is not handed on again: leadership moves too fast then.
const forwarded = "Druid-Forwarded-By"

// forward answers what the leader's agent answers. An error means that nothing was answered yet.
func (a *Agent) forward(ctx context.Context, w http.ResponseWriter, status membership.Status, request snapshotRequest) error {
	view, err := membership.Observe(ctx, a.options.Transport.Etcd, membership.Query{
		Endpoints: []string{a.local()}, ClusterID: status.ClusterID, Timeout: lookTimeout,
	})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(view.Members, func(m membership.Member) bool { return m.ID == status.Leader })
	if i < 0 {
		return fmt.Errorf("member %s is not listed", leases.FormatID(status.Leader))
	}
	c := a.options.Config
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	url := a.options.Transport.URL(a.host(view.Members[i].Name), c.AgentPort) + snapshotsPath
	onward, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	onward.Header.Set(forwarded, c.Member)
	client := a.options.Transport.HTTPClient()
	client.Timeout = 0 // ctx has its own
	response, err := client.Do(onward)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // a client that went away needs no answer
	return nil
}

func (a *Agent) answer(w http.ResponseWriter, r *http.Request, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.log.DebugContext(r.Context(), "answer not written", "err", err)
	}
}
