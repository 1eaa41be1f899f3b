package harness

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sync/errgroup"
)

// Registry is a registry of images in the process of the tests. The nodes have it instead of the registry of a name, and this machine
// pushes to it.
type Registry struct {
	// Address is where this machine pushes, without TLS.
	Address string

	mu    sync.Mutex
	asked map[string]map[string]bool
}

// ServeRegistry lets the nodes pull the images of a registry, such as "ghcr.io", from one that is empty, until the test ends.
func (r *Rig) ServeRegistry(t testing.TB, name string) *Registry {
	t.Helper()
	near, nearErr := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	far, farErr := r.Lab.Listen(t.Context())
	if err := errors.Join(nearErr, farErr); err != nil {
		t.Fatalf("listen for a registry: %v", err)
	}
	images := registry.New(registry.WithReferrersSupport(true), registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir())),
		registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	served := &Registry{Address: near.Addr().String(), asked: map[string]map[string]bool{}}
	var g errgroup.Group
	serve := func(listener net.Listener, handler http.Handler) {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		t.Cleanup(func() { _ = server.Close() })
		g.Go(func() error {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	t.Cleanup(func() { // the last of these
		if err := g.Wait(); err != nil {
			t.Errorf("serve the registry: %v", err)
		}
	})
	serve(near, images)
	serve(far, served.recording(images))
	t.Cleanup(func() {
		if err := r.Lab.ForgetRegistry(name); err != nil {
			t.Error(err)
		}
	})
	if err := r.Lab.UseRegistry(name, far.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return served
}

// recording keeps what each address of a node asks for by name.
func (s *Registry) recording(images http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, reference, found := strings.Cut(r.URL.Path, "/manifests/"); found {
			node, _, _ := net.SplitHostPort(r.RemoteAddr)
			s.mu.Lock()
			if s.asked[reference] == nil {
				s.asked[reference] = map[string]bool{}
			}
			s.asked[reference][node] = true
			s.mu.Unlock()
		}
		images.ServeHTTP(w, r)
	})
}

// Asked are the tags and the digests that nodes asked for, and the addresses of those nodes.
func (s *Registry) Asked() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := map[string][]string{}
	for reference, nodes := range s.asked {
		asked[reference] = slices.Sorted(maps.Keys(nodes))
	}
	return asked
}

// Reinstall installs druid as the rig did at its start, from the sources as they are, in place of what a test installed.
func (r *Rig) Reinstall(t testing.TB) {
	t.Helper()
	if err := r.install(context.WithoutCancel(t.Context()), r.agents); err != nil {
		t.Errorf("install druid of the sources again: %v", err)
	}
}
