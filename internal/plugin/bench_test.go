package plugin

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/webui"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/situations"
)

// benchClusters is how many EtcdClusters BenchmarkFleetPage shows.
const benchClusters = 500

// BenchmarkFleetPage answers the request of a browser for the list of 500 EtcdClusters in all situations: it reads both lists of an API
// server, makes the view of each cluster, and renders the page. The API server of the benchmark has its answers ready.
func BenchmarkFleetPage(b *testing.B) {
	now := func() time.Time { return situations.Now }
	source := webSource{kube: benchKube(b), all: true, now: now}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	size, before := 0, machine.CPU()
	b.ReportAllocs()
	for b.Loop() {
		server, err := webui.New(webui.Options{Source: source, Now: now, Scope: "all namespaces", Start: "/"}, listener) // another one would have read
		if err != nil {
			b.Fatal(err)
		}
		handler, opened, shown := server.Handler(), httptest.NewRecorder(), httptest.NewRecorder()
		handler.ServeHTTP(opened, httptest.NewRequest(http.MethodGet, server.URL(), nil))
		list, _, _ := strings.Cut(server.URL(), "?")
		request := httptest.NewRequest(http.MethodGet, list, nil)
		request.Header.Set("Cookie", opened.Header().Get("Set-Cookie"))
		handler.ServeHTTP(shown, request)
		if rows := strings.Count(shown.Body.String(), `<tr role="row" id="c-`); shown.Code != http.StatusOK || rows != benchClusters {
			b.Fatalf("code %d, %d rows", shown.Code, rows)
		}
		size = shown.Body.Len()
	}
	b.ReportMetric(float64(size)/1024, "KiB/page")
	b.ReportMetric(float64((machine.CPU()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// benchKube is an API server that has two lists ready.
func benchKube(b *testing.B) *kube {
	b.Helper()
	var clusters []v1alpha1.EtcdCluster
	var found []coordinationv1.Lease
	for i := 0; len(clusters) < benchClusters; i++ {
		all := situations.All()
		one := all[i%len(all)].Objects
		one.Cluster.Namespace = fmt.Sprintf("team-%03d", i)
		clusters = append(clusters, one.Cluster)
		for _, lease := range one.Leases {
			lease.Namespace = one.Cluster.Namespace
			found = append(found, lease)
		}
	}
	lists := map[string][]byte{
		"etcdclusters": listJSON(b, v1alpha1.GroupVersion.String(), "EtcdCluster", clusters),
		"leases":       listJSON(b, coordinationv1.SchemeGroupVersion.String(), "Lease", found),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(lists[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]) // the client says what is missing
	}))
	b.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	k := &kube{config: config}
	var err error
	if k.dynamic, err = dynamic.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	if k.typed, err = kubernetes.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	return k
}

// listJSON is a list as an API server answers it.
func listJSON[T any](b *testing.B, version, kind string, items []T) []byte {
	b.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": version, "kind": kind + "List", "metadata": map[string]any{}, "items": items})
	if err != nil {
		b.Fatal(err)
	}
	return text
}
