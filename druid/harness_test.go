package druid

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/test/env"
)

const (
	agentImage = "ghcr.io/etcd-druid/druid:test"
	// maxWait of a test with a druid on a machine that compiles next to it.
	maxWait = 3 * time.Minute
	// druidUser is the ServiceAccount of the install: druid has only the rights that it is installed with.
	druidUser = "system:serviceaccount:druid-system:druid"
)

// serviceAccounts are the groups of a ServiceAccount.
var serviceAccounts = []string{"system:serviceaccounts", "system:authenticated"}

// stage is a namespace on a real API server in which a real druid works, with the rights of its ClusterRole. The test
// stands in for the kubelets and the agents.
type stage struct {
	testing.TB
	client.Client // of an administrator
	config        *rest.Config
	namespace     string
	user          string // who druid is, druidUser where it is empty
	calls         *calls
	joins         bool // whether clusters join one that runs
	druids        []*Druid
	log           io.Writer // where the log of druid goes too, at level debug, or nil
	// beat renews Leases while the test waits, or nil.
	beat   func()
	beaten time.Time
	// certified is what the running etcd of each member uses, for agents that report it.
	certified map[string]certified
}

// calls are the requests that druid made, and the creations of them that the API server took: of those that come too
// late, because druid's cache did not show the object yet, nothing becomes.
type calls struct {
	mu      sync.Mutex
	made    []string
	created []string
}

func (c *calls) RoundTrip(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.RawQuery, "watch=") && !strings.Contains(r.URL.Path, "/events") {
			c.mu.Lock()
			c.made = append(c.made, r.Method+" "+r.URL.Path)
			c.mu.Unlock()
		}
		response, err := next.RoundTrip(r)
		if err == nil && r.Method == http.MethodPost && response.StatusCode == http.StatusCreated {
			c.mu.Lock()
			c.created = append(c.created, r.URL.Path)
			c.mu.Unlock()
		}
		return response, err
	})
}

// creations are the paths, ending in part, under which druid created something.
func (c *calls) creations(part string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.created), func(path string) bool { return !strings.HasSuffix(path, part) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// matching are the calls that begin with method and whose path holds part.
func (c *calls) matching(method, part string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.made), func(call string) bool {
		return !strings.HasPrefix(call, method+" ") || !strings.Contains(call, part)
	})
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.made)
}

// since are the calls after the first n.
func (c *calls) since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made[n:])
}

// newStage makes a namespace for a test that runs next to others; no druid works in it yet.
func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	return anotherStage(t)
}

// anotherStage is newStage for a test that has a stage already, or that runs alone.
func anotherStage(t *testing.T) *stage {
	t.Helper()
	return stageOn(t, env.APIServer(t))
}

// stageOn is a stage on an API server.
func stageOn(t *testing.T, config *rest.Config) *stage {
	t.Helper()
	s := &stage{TB: t, config: config, calls: &calls{}}
	s.Client, s.namespace = s.clientOf(config), env.Namespace(t, config)
	s.install("rbac.yaml")
	s.install("admission.yaml") // the policies hold for all tests on the API server, whichever comes first
	return s
}

// as is a client of another user, with the rights of the user and of its groups.
func (s *stage) as(user string, groups ...string) client.Client {
	s.Helper()
	return s.clientOf(s.configAs(user, groups...))
}

// configAs is a configuration of clients of another user.
func (s *stage) configAs(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// clientOf is a client for the types that druid uses.
func (s *stage) clientOf(config *rest.Config) client.Client {
	s.Helper()
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// install applies the objects of druid's own install.
func (s *stage) install(file string) {
	s.Helper()
	f, err := os.Open(filepath.Join("..", "manifests", "install", file))
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "druid-system"}}
	if err := client.IgnoreAlreadyExists(s.Create(s.Context(), namespace)); err != nil {
		s.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var object unstructured.Unstructured
		if decoder.Decode(&object.Object) != nil {
			return
		}
		if err := client.IgnoreAlreadyExists(s.Create(s.Context(), &object)); err != nil {
			s.Fatal(err)
		}
	}
}

// startDruid runs a druid until the returned function, or the test's end.
func (s *stage) startDruid(change ...func(*Options)) (stop func()) {
	s.Helper()
	o := DefaultOptions()
	o.AgentImage, o.Namespaces = agentImage, []string{s.namespace}
	o.LeaderElect, o.HealthAddress, o.MetricsAddress = false, "0", "0"
	o.AgentRenewInterval = time.Second // druid believes an acknowledgement after two of these
	for _, f := range change {
		f(&o)
	}
	config := s.configAs(cmp.Or(s.user, druidUser), serviceAccounts...)
	config.Wrap(s.calls.RoundTrip)
	config.Wrap(used.Record)
	ctx, cancel := context.WithCancel(s.Context())
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	output := s.Output()
	if s.log != nil {
		level, output = slog.LevelDebug, io.MultiWriter(output, s.log)
	}
	log := slog.New(slog.NewJSONHandler(output, &slog.HandlerOptions{Level: level}))
	d, err := New(ctx, config, o, log)
	if err != nil {
		cancel()
		s.Fatal(err)
	}
	s.druids = append(s.druids, d)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("druid ended with %v", err)
		}
	})
	s.Cleanup(stop)
	return stop
}

// eventually polls until check finds nothing wrong.
func (s *stage) eventually(what string, check func() error) {
	s.Helper()
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	// The checks of six tests at once, 50 times a second, kept the API server busy that druid waited for.
	pause := loop.Backoff{First: 20 * time.Millisecond, Last: 200 * time.Millisecond}
	for {
		if beat := s.beat; beat != nil && time.Since(s.beaten) > time.Second {
			s.beat = nil // it waits for something too
			beat()
			s.beat, s.beaten = beat, time.Now()
		}
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			s.Fatalf("%s: %v", what, err)
		case <-time.After(pause.Next()):
		}
	}
}

// edit changes an object as a user does, who tries again when druid wrote it in between.
func (s *stage) edit(name string, object client.Object, change func()) {
	s.Helper()
	s.eventually("edit "+name, func() error {
		if err := s.fetch(name, object); err != nil {
			return err
		}
		change()
		return s.Update(s.Context(), object)
	})
}

// caughtUp waits until the cache of every druid has the object as the API server has it.
func (s *stage) caughtUp(name string, object client.Object) {
	s.Helper()
	s.eventually("the cache of druid has "+name, func() error {
		if err := s.fetch(name, object); err != nil {
			return err
		}
		live := object.GetResourceVersion()
		for _, d := range s.druids {
			err := d.manager.GetCache().Get(s.Context(), client.ObjectKeyFromObject(object), object)
			if err != nil || object.GetResourceVersion() != live {
				return fmt.Errorf("its cache has version %s, the API server %s: %w", object.GetResourceVersion(), live, err)
			}
		}
		return nil
	})
}

// fetch reads an object, and fails with what is missing.
func (s *stage) fetch(name string, into client.Object) error {
	return s.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, into)
}

// uids of the members' objects.
func (s *stage) uids(names []string, object client.Object) map[string]types.UID {
	s.Helper()
	uids := map[string]types.UID{}
	for _, name := range names {
		if err := s.fetch(name, object); err != nil {
			s.Fatal(err)
		}
		uids[name] = object.GetUID()
	}
	return uids
}

// replaced waits until the object called name exists with another UID than before.
func (s *stage) replaced(name string, before types.UID, object client.Object) {
	s.Helper()
	s.eventually("replace "+name, func() error {
		if err := s.fetch(name, object); err != nil {
			return err
		}
		if object.GetUID() == before {
			return fmt.Errorf("%s still is %s", name, before)
		}
		return nil
	})
}

// restTime is how long druid must make no call to count as at rest.
const restTime = time.Second

// rests says whether druid makes no call for as long as restTime.
func (s *stage) rests() error {
	before := s.calls.count()
	timer := time.NewTimer(restTime)
	defer timer.Stop()
	<-timer.C
	if after := s.calls.count(); after != before {
		return fmt.Errorf("druid made %d calls", after-before)
	}
	return nil
}
