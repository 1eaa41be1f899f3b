package plugin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// node answers the API server as a kubelet does. The containers of the Pods do not run: it has their logs, and runs no command.
type node struct {
	*testing.T
	mu   sync.Mutex
	logs map[string]string // by Pod and container
	// ran are the commands, each as its URL and its input. code is the exit code of each.
	ran   []url.URL
	input string
	code  int
	// program answers commands in the containers of agents. Without it, each command prints OK.
	program func(command []string, stdout, stderr io.Writer) int
	// ports are the addresses to which the port of etcd of a Pod leads. forwards are the connections to Pods.
	ports    map[string]string
	forwards map[string]httpstream.Connection
}

// newNode creates a node whose kubelet it is.
func newNode(s *stage) (*node, string) {
	s.Helper()
	n := &node{T: s.T, logs: map[string]string{}, ports: map[string]string{}, forwards: map[string]httpstream.Connection{}}
	server := httptest.NewTLSServer(n)
	s.Cleanup(server.Close)
	host, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		s.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		s.Fatal(err)
	}
	object, err := s.typed.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kubelet-of-" + s.namespace}},
		metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	if _, err := s.typed.CoreV1().Nodes().UpdateStatus(s.Context(), object, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	return n, object.Name
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); parts[0] {
	case "containerLogs":
		text, ok := n.logs[parts[2]+"/"+parts[3]]
		if !ok {
			http.Error(w, "the container has not started", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, text)
	case "exec":
		n.exec(w, r)
	case "portForward":
		n.portForward(w, r)
	default:
		http.NotFound(w, r)
	}
}

// exec takes the streams, answers on them what it was asked for, and ends with the exit code.
func (n *node) exec(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		n.Error(err)
		return
	}
	arrived := make(chan httpstream.Stream, 4)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		arrived <- s
		return nil
	})
	if connection == nil {
		n.Error("the connection was not upgraded")
		return
	}
	defer func() { _ = connection.Close() }()
	streams := map[string]httpstream.Stream{}
	wanted := 3 // output, errors and the exit code
	if r.URL.Query().Get("input") == "1" {
		wanted++
	}
	for len(streams) < wanted {
		select {
		case s := <-arrived:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-time.After(maxWait):
			n.Errorf("only %d streams came", len(streams))
			return
		}
	}
	var input []byte
	if stdin := streams[corev1.StreamTypeStdin]; stdin != nil {
		input, _ = io.ReadAll(stdin)
	}
	n.mu.Lock()
	n.ran, n.input = append(n.ran, *r.URL), string(input)
	code := n.code
	n.mu.Unlock()
	if n.program != nil && strings.HasSuffix(r.URL.Path, "/"+containerAgent) {
		code = n.program(r.URL.Query()["command"], streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStderr])
	} else {
		_, _ = io.WriteString(streams[corev1.StreamTypeStdout], "OK\n")
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}},
		}
	}
	_ = json.NewEncoder(streams[corev1.StreamTypeError]).Encode(status)
	for _, s := range streams {
		_ = s.Close()
	}
	<-connection.CloseChan()
}

// onNode moves all Pods of the situation to the node.
func onNode(o view.Objects, node string) view.Objects {
	for i := range o.Pods {
		o.Pods[i].Spec.NodeName = node
		o.Pods[i].Spec.InitContainers = []corev1.Container{{Name: containerAgent, Image: "registry.example.com/druid:v0.6.0"}}
	}
	return o
}

func TestEtcdctlRunsInTheContainerOfTheLeader(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	out, errs, code := s.run("etcdctl", "demo", "--stdin", "--", "put", "greeting", "-w", "json")
	n.mu.Lock()
	input := n.input
	n.mu.Unlock()
	if out != "OK\n" || errs != "" || code != 0 || input != "from the terminal" {
		t.Errorf("exit code %d, printed %q %q, input %q", code, out, errs, input)
	}
	n.mu.Lock()
	n.code = 7
	n.mu.Unlock()
	_, errs, code = s.run("etcdctl", "demo", "--member", "demo-sx47z", "--", "endpoint", "health")
	n.mu.Lock()
	input = n.input
	n.mu.Unlock()
	if code != 7 || errs != "" || input != "" {
		t.Errorf("exit code %d, %q, input %q, which it must leave to the next command", code, errs, input)
	}
	var ran []string
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, u := range n.ran {
		ran = append(ran, strings.TrimPrefix(u.Path, "/exec/"+s.namespace)+" "+strings.Join(u.Query()["command"], " "))
	}
	want := "/demo-bqdq7/etcd etcdctl --endpoints=http://localhost:2379 put greeting -w json\n/demo-sx47z/etcd etcdctl " +
		"--endpoints=http://localhost:2379 endpoint health"
	if got := strings.Join(ran, "\n"); got != want {
		t.Errorf("it ran\n%s\nwant\n%s", got, want)
	}
	for want, args := range map[string][]string{
		"two dashes":                  {"etcdctl", "demo", "member", "list"},
		"it has no member demo-aaaaa": {"etcdctl", "demo", "--member", "demo-aaaaa", "--", "member", "list"},
		"the arguments of etcdctl":    {"etcdctl", "demo", "--"},
		`"other" not found`:           {"etcdctl", "other", "--", "member", "list"},
	} {
		if _, errs, code := s.run(args...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}

// The paths are those from which the agent starts etcd.
func TestEtcdctlUsesTheCertificatesInEffect(t *testing.T) {
	if got := strings.Join(etcdctl(situation(t, "serving").Cluster), " "); got != "etcdctl --endpoints=http://localhost:2379" {
		t.Errorf("without TLS: %s", got)
	}
	got := strings.Join(etcdctl(situation(t, "tls").Cluster), " ")
	contains(t, got, "--endpoints=https://localhost:2379", "--cacert="+config.TLSDir+"/client/trust.crt",
		"--cert="+config.TLSDir+"/client/current/client.crt", "--key="+config.TLSDir+"/client/current/client.key")
	flags := strings.Join(certificates.Args(config.Config{TLSDir: config.TLSDir, ClientTLS: config.TLSMutual}), " ")
	contains(t, flags, "--trusted-ca-file="+clientTLSDir+"trust.crt", "="+clientTLSDir+"current/tls.crt")
	own := situation(t, "own-certificates").Cluster
	contains(t, strings.Join(etcdctl(own), " "), "--endpoints=https://demo-client.default.svc:2379")
}

func TestLogsAreMergedByTime(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	n.logs["demo-bqdq7/agent"] = `2026-11-24T02:59:01.000000001Z {"time":"2026-11-24T02:59:01Z","level":"INFO","msg":"backup decision ` +
		`changed","verdict":"Wait","rule":"saved"}` + "\n" +
		`2026-11-24T02:59:03.5Z {"time":"2026-11-24T02:59:03Z","level":"ERROR","msg":"backup failed","err":"access denied","attempt":3}` + "\n"
	n.logs["demo-bqdq7/etcd"] = `2026-11-24T02:59:02.25Z ` +
		`{"level":"warn","ts":"2026-11-24T02:59:02.2Z","caller":"etcdserver/util.go:170","msg":"apply request took too long","took":"212ms"}` + "\n"
	n.logs["demo-lgmkl/etcd"] = "2026-11-24T02:59:02Z panic: not JSON\n" + `2026-11-24T02:59:02.1Z {"n":1}` + "\n"
	n.logs["druid-6c9f7-x2x7k/druid"] = druidLog(s.namespace)
	s.putDruid(name)
	out, errs, code := s.run("logs", "demo")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	golden.File(t, "testdata/logs.txt", s.neutral(out))
	if out, _, _ := s.run("logs", "demo", "--tail", "1"); strings.Contains(out, "spec accepted") || !strings.Contains(out, "Reconciler error") {
		t.Errorf("the last line of each container about the cluster: %s", out)
	}
	contains(t, errs, "The log of agent in Pod "+s.namespace+"/demo-lgmkl could not be read", "the container has not started")
	out, _, code = s.run("logs", "demo", "--follow", "--member", "demo-lgmkl")
	if contains(t, out, "panic: not JSON"); code != 0 || strings.Contains(out, "demo-bqdq7") || strings.Contains(out, "druid-6c9f7") {
		t.Errorf("exit code %d: %s", code, out)
	}
	_, errs, code = s.run("logs", "demo", "--member", "demo-sx47z")
	if contains(t, errs, "kubectl druid logs: no log could be read"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// putDruid creates a Pod of druid on the node.
func (s *stage) putDruid(node string) {
	s.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "druid-6c9f7-x2x7k", Labels: map[string]string{"app.kubernetes.io/name": "druid"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "druid", Image: "registry.example.com/druid:v0.6.0"}}},
	}
	if _, err := s.typed.CoreV1().Pods(s.namespace).Create(s.Context(), pod, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.typed.CoreV1().Pods(s.namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			s.Error(err)
		}
	})
}

// druidLog is a log of druid about the cluster demo of a namespace, and about much else.
func druidLog(namespace string) string {
	return `2026-11-24T02:59:00Z {"level":"INFO","msg":"spec accepted","namespace":"` + namespace + `","cluster":"demo",` +
		`"generation":4,"rule":"target-reached"}` + "\n" +
		`2026-11-24T02:59:00.1Z {"level":"INFO","msg":"another cluster","namespace":"` + namespace + `","cluster":"other"}` + "\n" +
		`2026-11-24T02:59:00.2Z {"level":"INFO","msg":"another namespace","namespace":"elsewhere","cluster":"demo"}` + "\n" +
		`2026-11-24T02:59:02.6Z {"level":"ERROR","msg":"Reconciler error","controllerKind":"EtcdCluster","namespace":"` + namespace +
		`","name":"demo","err":"conflict"}` + "\n" +
		`2026-11-24T02:59:02.7Z {"level":"ERROR","msg":"another kind","controllerKind":"EtcdSnapshot","namespace":"` + namespace + `","name":"demo"}` + "\n" +
		"2026-11-24T02:59:04Z no JSON\n"
}

func TestWhoMayNotReadDruidGetsTheOtherLogs(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	n.logs["demo-bqdq7/etcd"] = "2026-11-24T02:59:02Z of etcd\n"
	s.grant("viewer", viewing...)
	var out, errs string
	s.eventually(func() bool {
		var code int
		out, errs, code = s.run("logs", "demo", "--as", "viewer")
		return code == 0
	})
	contains(t, out, "of etcd")
	contains(t, errs, "The logs of druid are not shown: list the Pods of druid: ", "forbidden")
}

func TestConnectAndVersion(t *testing.T) {
	for _, name := range []string{"serving", "tls", "own-certificates", "paused", "quorum-lost"} {
		var out strings.Builder
		p := newPage(&out, situations.Now)
		p.connection(p.connectionData(situation(t, name).Cluster))
		golden.File(t, "testdata/connect/"+name+".txt", out.String())
	}
	var out strings.Builder
	p := newPage(&out, situations.Now)
	d := p.connectionData(situation(t, "tls").Cluster)
	d.Forward = &forwardData{Endpoint: d.endpoint, Member: "demo-bqdq7"}
	d.Commands = d.forwardCommands("/tmp/kubectl-druid-2409191707")
	p.forwarding(d)
	golden.File(t, "testdata/connect/forward.txt", out.String())
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	printed, _, code := s.run("connect", "demo")
	if contains(t, printed, "http://demo-client.default.svc:2379"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	printed, _, code = s.run("version")
	if contains(t, printed, "Plugin", "serves etcd.druid.dev/v1alpha1"); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// The shell asks the plugin for what can follow.
func TestNamesAreCompleted(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	out, _, _ := s.run("__complete", "status", "--kubeconfig", s.kubeconfig, "")
	contains(t, out, "demo\n:4")
	out, _, _ = s.run("completion", "bash")
	contains(t, out, "kubectl-druid")
}
