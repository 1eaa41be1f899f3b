package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func (a *Agent) newBackups(store *leases.Store) (*backups.Duty, error) {
	metrics, err := backups.NewMetrics(a.options.Registry, a.metrics.decisions)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return backups.New(backups.Options{
		Leases: store, Dial: a.transport.Etcd, Listen: a.transport.Listener, Local: a.local(), Self: a.history, Open: open.Open,
		HandOn:  decider{agent: a}.transfer,
		Scratch: cmp.Or(a.options.Scratch, config.ScratchDir), Quota: a.options.Config.QuotaBackendBytes, Metrics: metrics, Log: a.log,
	}), nil
}

// history returns the identity of the member's data for backups, from the identity file on its volume. It returns
// false if it is not certain that the raft group was formed.
func (a *Agent) history() (backups.Identity, bool) {
	identityFile, known := a.bootstrapper.Identity()
	lineage, err := catalog.ParseLineage(identityFile.Lineage)
	return backups.Identity{
		Lineage: lineage, ClusterID: uint64(identityFile.ClusterID), MemberID: uint64(identityFile.MemberID), ClusterUID: identityFile.Cluster,
		Parent: catalog.Lineage(identityFile.Parent), Fork: identityFile.Fork,
	}, known && identityFile.Formed && err == nil
}

// backUp makes backups while this member is the raft leader. It needs no Lease, so it continues while the Kubernetes
// API is unavailable.
func (a *Agent) backUp(ctx context.Context) error {
	raft := func(ctx context.Context, lead func(context.Context)) error {
		lead(ctx)
		return nil
	}
	return duties.WhileLeader(ctx, a.observer.leads, raft, func(ctx context.Context) { a.keep(ctx, "saving", a.backups.Run) })
}

// handOver moves leadership away, and backs up the remaining changes: without another leader, no agent would do that.
func (d decider) handOver(ctx context.Context) {
	var group errgroup.Group
	group.Go(func() error {
		d.transfer(ctx)
		return nil
	})
	group.Go(func() error {
		if err := d.agent.backups.Flush(ctx); err != nil {
			d.agent.log.WarnContext(ctx, "last delta backup failed", "err", err)
		}
		return nil
	})
	_ = group.Wait() // both have reported what went wrong
}

// snapshotsPath is the path for backups on demand.
const snapshotsPath = "/v1/snapshots"

// snapshotTimeout bounds a backup on demand. A full backup of 8 GiB takes half an hour at 5 MB/s, and another one can
// be in progress.
const snapshotTimeout = time.Hour

// snapshotRequest is the body of POST /v1/snapshots.
type snapshotRequest struct {
	Type string `json:"type"`
}

// snapshotRefusal is the response if no backup was made.
type snapshotRefusal struct {
	Error string `json:"error"`
	// Leader is the name of the member whose agent to query instead, if it is known.
	Leader string `json:"leader,omitempty"`
}

// notLocal is the response to a request from outside the Pod.
const notLocal = "backups on demand must be requested from inside the Pod, because the agent does not authenticate clients: create an EtcdSnapshot, " +
	"or run kubectl port-forward to the Pod of the leader and send the request to 127.0.0.1"

// serveSnapshot makes a backup on demand, for users who may start a process in the Pod or forward a port to it. With a
// retention by count, each new full backup can delete an older one.
func (a *Agent) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	if !local(r.RemoteAddr) {
		a.answer(w, r, http.StatusForbidden, snapshotRefusal{Error: notLocal})
		return
	}
	var request snapshotRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&request); err != nil {
		a.answer(w, r, http.StatusBadRequest, snapshotRefusal{Error: "want {\"type\":\"Full\"} or {\"type\":\"Delta\"}: " + err.Error()})
		return
	}
	if err := transport.TakeUpTo(w, snapshotTimeout); err != nil {
		a.answer(w, r, http.StatusInternalServerError, snapshotRefusal{Error: err.Error()})
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
		a.refuse(ctx, w, r, err)
	default:
		a.answer(w, r, http.StatusInternalServerError, snapshotRefusal{Error: err.Error()})
	}
}

// local reports whether a connection comes from the Pod's own network namespace. An address that cannot be parsed does
// not.
func local(remote string) bool {
	from, err := netip.ParseAddrPort(remote)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// refuse names the leader in its response. If this member leads, it returns the error: there is nothing to back up, or
// not yet.
func (a *Agent) refuse(ctx context.Context, w http.ResponseWriter, r *http.Request, idle error) {
	state, _ := a.observer.State()
	leads := state.Status.Leader
	if !state.Reachable || leads == 0 || leads == state.Status.MemberID {
		a.answer(w, r, http.StatusConflict, snapshotRefusal{Error: idle.Error()})
		return
	}
	name, err := a.leaderName(ctx, state.Status)
	if err != nil {
		refusal := snapshotRefusal{Error: fmt.Sprintf("%v; the leader is member %s, but its name cannot be read: %v", idle, leases.FormatID(leads), err)}
		a.answer(w, r, http.StatusMisdirectedRequest, refusal)
		return
	}
	a.answer(w, r, http.StatusMisdirectedRequest, snapshotRefusal{Error: idle.Error() + ": send the request to the agent of the leader " + name, Leader: name})
}

func (a *Agent) leaderName(ctx context.Context, status membership.Status) (string, error) {
	view, err := membership.Observe(ctx, a.transport.Etcd, membership.Query{
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
