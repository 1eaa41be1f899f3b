package webui

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/view"
)

const (
	// clusterInterval is the pause between two reads of one cluster while a page shows it, so that a change is seen within about two seconds.
	// Members renew their Leases every 15 seconds.
	clusterInterval = 2 * time.Second
	// fleetInterval is that of the list, which is larger.
	fleetInterval = 5 * time.Second
	// headerTimeout bounds how long a client can take for its request.
	headerTimeout = 10 * time.Second
	// maxFeeds bounds how many clusters are remembered.
	maxFeeds = 1000
)

// Options are what a Server shows.
type Options struct {
	Source Source
	// Now is the clock of this computer.
	Now func() time.Time
	// Scope says which clusters the list has, for example "namespace default".
	Scope string
	// Start is the path of the page that opens first, / for the list.
	Start string
}

// ClusterPath is the path of the page of a cluster.
func ClusterPath(namespace, name string) string {
	return "/clusters/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// Server serves the web page.
type Server struct {
	Options
	guard *guard
	fleet *feed[Fleet]

	mu       sync.Mutex
	clusters map[string]*feed[view.Cluster]
	backups  map[string]*feed[Backups]
}

// New returns a Server for a listener on the loopback interface.
func New(o Options, listener net.Listener) (*Server, error) {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return nil, fmt.Errorf("serve the web page at %s: want an address of the loopback interface, for everyone who reaches it has your permissions",
			listener.Addr())
	}
	return &Server{Options: o, guard: newGuard(address), fleet: newFeed(fleetInterval, o.Now, o.Source.Fleet),
		clusters: map[string]*feed[view.Cluster]{}, backups: map[string]*feed[Backups]{}}, nil
}

// URL is the address that opens the page, once. It is below a random path.
func (s *Server) URL() string { return s.address("/?token=" + s.guard.token) }

// address is that of a path.
func (s *Server) address(path string) string {
	return "http://" + s.guard.hosts[0] + s.guard.base + path
}

//go:embed assets
var assets embed.FS

// Handler answers the requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", show(s.lookAtFleet))
	mux.HandleFunc("GET /live/fleet", follow(s.lookAtFleet))
	mux.HandleFunc("GET /clusters/{namespace}/{name}", show(s.lookAtCluster))
	mux.HandleFunc("GET /clusters/{namespace}/{name}/backups", show(s.lookAtBackups))
	mux.HandleFunc("GET /live/clusters/{namespace}/{name}", follow(s.lookAtCluster))
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("/", s.nothing)
	return s.guard.wrap(mux, http.HandlerFunc(s.welcome))
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		BaseContext: func(net.Listener) context.Context { return serving },
	}
	var group errgroup.Group
	group.Go(func() error {
		defer cancel()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the web page at %s: %w", listener.Addr(), err)
		}
		return nil
	})
	<-serving.Done()
	_ = server.Close() // it is over for every page
	return group.Wait()
}

// clusterFeed returns the feed of a cluster, which all its pages share.
func (s *Server) clusterFeed(namespace, name string) *feed[view.Cluster] {
	return remembered(s, s.clusters, namespace+"/"+name, func() *feed[view.Cluster] {
		return newFeed(clusterInterval, s.Now, func(ctx context.Context) (view.Cluster, error) { return s.Source.Cluster(ctx, namespace, name) })
	})
}

// backupsFeed is that of the backups of a cluster.
func (s *Server) backupsFeed(namespace, name string) *feed[Backups] {
	return remembered(s, s.backups, namespace+"/"+name, func() *feed[Backups] {
		f := newFeed(freshBackups, s.Now, func(ctx context.Context) (Backups, error) { return s.Source.Backups(ctx, namespace, name) })
		f.fresh = freshBackups
		return f
	})
}

// remembered returns the feed of a cluster, and makes it if there is none.
func remembered[T any](s *Server, all map[string]*feed[T], key string, create func() *feed[T]) *feed[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all[key] == nil {
		if len(all) >= maxFeeds {
			clear(all)
		}
		all[key] = create()
	}
	return all[key]
}
