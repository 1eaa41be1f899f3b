package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/membership"
)

// Times of the endpoints.
const (
	// observerBound is how long a loop of short, bounded calls may take before the agent calls itself stuck.
	observerBound = time.Minute
	// shutdownTimeout of requests that are under way when the agent ends.
	shutdownTimeout = 2 * time.Second
)

// serve answers on the agent's port until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	c := a.options.Config
	listener, err := a.options.Transport.Listen(ctx, c.ListenHost, c.AgentPort)
	if err != nil {
		return err
	}
	server := a.options.Transport.Server(a.handler())
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-serving.Done()
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return server.Shutdown(ended)
	})
	return group.Wait()
}

func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(a.alive))
	mux.HandleFunc("GET /readyz", probe(a.ready))
	mux.HandleFunc("GET /healthz", probe(a.healthy))
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.options.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/status", a.serveStatus)
	mux.HandleFunc("POST "+snapshotsPath, a.serveSnapshot)
	return mux
}

// probe answers 200 ok, or 503 and why.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // a client that went away needs no answer
	}
}

// alive looks at the agent's own loops and at nothing else: no fault of etcd or of Kubernetes is repaired by a restart of
// the agent.
func (a *Agent) alive() error {
	bounds := map[string]time.Duration{loopObserver: observerBound, loopRenewer: observerBound + 2*a.renewal().Interval}
	if loop := a.beats.stuck(bounds); loop != "" {
		return fmt.Errorf("loop %s does not come round", loop)
	}
	return nil
}

// healthy says whether the member is in the cluster and serves.
func (a *Agent) healthy() error {
	if state, _ := a.observer.State(); !state.Healthy {
		return fmt.Errorf("etcd is not healthy: %s", state.Problem)
	}
	return nil
}

// ready says whether clients may be sent to the member: it is healthy and votes.
func (a *Agent) ready() error {
	if err := a.healthy(); err != nil {
		return err
	}
	if state, _ := a.observer.State(); state.Status.Role == membership.RoleLearner {
		return errors.New("etcd is a learner: it serves no linearizable reads")
	}
	return nil
}

func (a *Agent) serveStatus(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(a.Status()); err != nil {
		a.log.DebugContext(r.Context(), "status not written", "err", err)
	}
}
