package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"
)

const (
	objectsNamespace = "default"
	objectsPace      = 100 * time.Millisecond
	// objectTimeout is the time for one request: kube-apiserver itself waits no longer than this for most of them by default.
	objectTimeout = time.Minute
)

// Objects creates ConfigMaps all the time, reads each back and watches them, as the controllers of a Kubernetes cluster do.
type Objects struct {
	kube  kubernetes.Interface
	end   context.CancelFunc
	group errgroup.Group

	mu      sync.Mutex
	created []string
	seen    map[string]int
	failed  []failure
	// cuts are the times at which an etcd was killed.
	cuts    []span
	slowest time.Duration
}

type span struct{ from, to time.Time }

// failure is a request that failed. The end of the watch has no time.
type failure struct {
	span
	err error
}

// CreateObjects begins to create objects and to watch them. It ends with Stop, or with the test.
func CreateObjects(t testing.TB, kube kubernetes.Interface) *Objects {
	t.Helper()
	var list *corev1.ConfigMapList
	Eventually(t, maxWait, "a list of ConfigMaps", func(ctx context.Context) (err error) {
		list, err = kube.CoreV1().ConfigMaps(objectsNamespace).List(ctx, metav1.ListOptions{})
		return err
	})
	watching, endWatch := context.WithCancel(context.WithoutCancel(t.Context()))
	watcher, err := retry.NewRetryWatcherWithContext(watching, list.ResourceVersion, cache.ToWatcherWithContext(&cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return kube.CoreV1().ConfigMaps(objectsNamespace).Watch(ctx, options)
		},
	}))
	if err != nil {
		endWatch()
		t.Fatalf("watch ConfigMaps: %v", err)
	}
	creating, endCreate := context.WithCancel(watching)
	o := &Objects{kube: kube, end: endCreate, seen: map[string]int{}}
	o.group.Go(func() error { defer endWatch(); o.create(creating); return o.awaitSeen(watching) })
	o.group.Go(func() error { o.follow(watcher.ResultChan()); return nil })
	t.Cleanup(func() { endCreate(); _ = o.group.Wait() })
	return o
}

// Cut kills an etcd. A write that is on its connection at that moment can fail: nothing shows whether etcd carried it out. So
// neither the etcd client nor kube-apiserver repeats it (etcd: client/v3, isSafeRetryMutableRPC). Objects has one request at a
// time. Any other failure counts: a later request must get another etcd.
func (o *Objects) Cut(kill func()) {
	cut := span{from: time.Now()}
	kill()
	cut.to = time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cuts = append(o.cuts, cut)
}

// unexplained are the failures but one for each cut. The caller holds the lock.
func (o *Objects) unexplained() []error {
	cuts := slices.Clone(o.cuts)
	var all []error
	for _, f := range o.failed {
		at := slices.IndexFunc(cuts, func(c span) bool { return f.from.Before(c.to) && f.to.After(c.from) })
		if at < 0 || strings.Contains(f.err.Error(), "learner") {
			all = append(all, f.err)
			continue
		}
		cuts = slices.Delete(cuts, at, at+1)
	}
	return all
}

// Note returns how many objects were created up to now, and how many requests failed.
func (o *Objects) Note() (created, failed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.created), len(o.unexplained())
}

// Stop ends it. It fails the test unless the API servers still have each object that they created, and the watch delivered each once.
func (o *Objects) Stop(t testing.TB) (created int, slowest time.Duration, failed []error) {
	t.Helper()
	o.end()
	if err := o.group.Wait(); err != nil {
		t.Error(err)
	}
	stored := map[string]bool{}
	Eventually(t, maxWait, "a list of all ConfigMaps", func(ctx context.Context) error {
		list, err := o.kube.CoreV1().ConfigMaps(objectsNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			stored[list.Items[i].Name] = true
		}
		return nil
	})
	for _, name := range o.created {
		if !stored[name] || o.seen[name] != 1 {
			Unsafe(t, "ConfigMap %s was created: it is stored: %t, and the watch delivered it %d times", name, stored[name], o.seen[name])
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	failed = o.unexplained()
	if n := len(o.failed) - len(failed); n > 0 {
		t.Logf("%d requests failed because their etcd was killed", n)
	}
	return len(o.created), o.slowest, failed
}

func (o *Objects) create(ctx context.Context) {
	for i := 0; pause(ctx, objectsPace); i++ {
		name := fmt.Sprintf("object-%d", i)
		begun := time.Now()
		err := o.createOne(context.WithoutCancel(ctx), name)
		o.mu.Lock()
		o.slowest = max(o.slowest, time.Since(begun))
		if err != nil {
			err = fmt.Errorf("at %s, after %s: %w", begun.Format(time.TimeOnly), time.Since(begun).Round(time.Millisecond), err)
			o.failed = append(o.failed, failure{span{begun, time.Now()}, err})
		} else {
			o.created = append(o.created, name)
		}
		o.mu.Unlock()
	}
}

func (o *Objects) createOne(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	maps := o.kube.CoreV1().ConfigMaps(objectsNamespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"name": name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	read, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err == nil && read.UID != made.UID {
		err = fmt.Errorf("it has UID %s, want %s", read.UID, made.UID)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// follow counts what the watch delivers.
func (o *Objects) follow(events <-chan watch.Event) {
	for e := range events {
		made, is := e.Object.(*corev1.ConfigMap)
		o.mu.Lock()
		switch {
		case is && e.Type == watch.Added:
			o.seen[made.Name]++
		case e.Type == watch.Error:
			o.failed = append(o.failed, failure{err: fmt.Errorf("the watch ended: %v", e.Object)})
		}
		o.mu.Unlock()
	}
}

// awaitSeen waits until the watch delivered all that was created.
func (o *Objects) awaitSeen(ctx context.Context) error {
	_, err := poll(ctx, maxWait, func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, name := range o.created {
			if o.seen[name] == 0 {
				return errors.New("the watch did not deliver " + name)
			}
		}
		return nil
	})
	return err
}
