package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/member"
	"github.com/etcd-druid/druid/test/situations"
)

// portForward leads connections to the address of the Pod, as a kubelet does. Each has two streams with the same number.
func (n *node) portForward(w http.ResponseWriter, r *http.Request) {
	pod := strings.Split(strings.Trim(r.URL.Path, "/"), "/")[2]
	if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		n.Error(err)
		return
	}
	var mu sync.Mutex
	problems := map[string]httpstream.Stream{}
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, answered <-chan struct{}) error {
		if port := s.Headers().Get(corev1.PortHeader); port != "2379" {
			return fmt.Errorf("the port is %q", port)
		}
		id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
		mu.Lock()
		defer mu.Unlock()
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			problems[id] = s
			return nil
		}
		go func(problem httpstream.Stream) {
			<-answered
			n.lead(pod, s, problem)
		}(problems[id])
		return nil
	})
	if connection == nil {
		n.Error("the connection was not upgraded")
		return
	}
	n.mu.Lock()
	n.forwards[pod] = connection
	n.mu.Unlock()
	<-connection.CloseChan()
}

// lead copies both directions, and says what is wrong on the stream for problems.
func (n *node) lead(pod string, data, problem httpstream.Stream) {
	defer func() { _, _ = data.Close(), problem.Close() }()
	n.mu.Lock()
	address := n.ports[pod]
	n.mu.Unlock()
	etcd, err := new(net.Dialer).DialContext(n.Context(), "tcp", address)
	if err != nil {
		_, _ = fmt.Fprintf(problem, "nothing listens in %s", pod)
		return
	}
	defer func() { _ = etcd.Close() }()
	go func() { _, _ = io.Copy(etcd, data) }()
	_, _ = io.Copy(data, etcd)
}

// serves gives a Pod a server on its port, which says the name of the Pod.
func (n *node) serves(pod string) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, pod+r.URL.Path) }))
	n.Cleanup(server.Close)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[pod] = server.Listener.Addr().String()
}

// running is a command that runs until it is interrupted.
type running struct {
	out, errs member.Buffer
	interrupt func()
	code      chan int
}

// start starts a command, and waits until it prints the words.
func (s *stage) start(words string, args ...string) *running {
	s.Helper()
	ctx, interrupt := context.WithCancel(s.Context())
	r := &running{interrupt: interrupt, code: make(chan int, 1)}
	root := newCommand(func() time.Time { return situations.Now })
	root.SetArgs(append([]string{args[0], "--kubeconfig", s.kubeconfig}, args[1:]...))
	root.SetOut(&r.out)
	root.SetErr(&r.errs)
	go func() { r.code <- cli.Main(ctx, root, slog.New(slog.DiscardHandler)) }()
	s.Cleanup(interrupt)
	s.eventually(func() bool {
		select {
		case code := <-r.code:
			s.Fatalf("it ended with code %d: %s%s", code, &r.out, &r.errs)
		default:
		}
		return strings.Contains(r.out.String(), words)
	})
	return r
}

// end interrupts the command, and expects the code 0.
func (s *stage) end(r *running) {
	s.Helper()
	r.interrupt()
	select {
	case code := <-r.code:
		if code != 0 {
			s.Errorf("it ended with code %d: %s", code, &r.errs)
		}
	case <-time.After(maxWait):
		s.Fatal("it does not end")
	}
}

// ask returns what the Pod behind a port says, each time by a connection of its own.
func ask(t *testing.T, endpoint string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestConnectForwardsUntilItIsInterrupted(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	for _, member := range situations.Members {
		n.serves(member)
	}
	r := s.start("}\n", "connect", "demo", "--forward", "--port", "0", "-o", "json")
	var d connectionData
	if err := json.Unmarshal([]byte(r.out.String()), &d); err != nil {
		t.Fatal(err)
	}
	endpoint := d.Forward.Endpoint
	if d.Forward.Member != "demo-bqdq7" || len(d.Forward.Variables) != 1 || d.Forward.Variables["ETCDCTL_ENDPOINTS"] != endpoint ||
		!strings.HasPrefix(endpoint, "http://localhost:") {
		t.Errorf("it forwards %+v", d.Forward)
	}
	for range 3 {
		if got, err := ask(t, endpoint); err != nil || got != "demo-bqdq7/version" {
			t.Errorf("got %q, %v", got, err)
		}
	}

	// The Pod ends, and its place in the status is still that of a leader: the API server connects, and no etcd listens there.
	n.mu.Lock()
	delete(n.ports, "demo-bqdq7")
	n.mu.Unlock()
	s.eventually(func() bool {
		got, err := ask(t, endpoint)
		return err == nil && got == "demo-lgmkl/version"
	})
	contains(t, r.errs.String(), "A connection was closed: pass a connection to member demo-bqdq7: nothing listens in demo-bqdq7.",
		"Connections go to member demo-lgmkl now.")
	n.serves("demo-bqdq7")
	n.mu.Lock()
	_ = n.forwards["demo-lgmkl"].Close() // its node restarts
	n.mu.Unlock()
	s.eventually(func() bool {
		got, err := ask(t, endpoint)
		return err == nil && strings.HasSuffix(got, "/version") // of any member: all serve
	})

	held, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	s.end(r) // although a client is connected
	if got, err := ask(t, endpoint); err == nil {
		t.Errorf("after the end, %q answers", got)
	}
}

func TestConnectForwardsWithCertificates(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(onNode(situation(t, "tls"), name))
	n.serves("demo-bqdq7")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "demo-connection"},
		Data: map[string][]byte{"ca.crt": []byte("ca"), "tls.crt": []byte("crt"), "tls.key": []byte("key")}}
	if _, err := s.typed.CoreV1().Secrets(s.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	r := s.start("press Ctrl+C", "connect", "demo", "--forward", "--port", "0")
	_, text, _ := strings.Cut(r.out.String(), "export ETCDCTL_KEY=")
	key, _, _ := strings.Cut(text, "\n")
	if got, err := os.ReadFile(strings.Trim(key, "'")); err != nil || string(got) != "key" {
		t.Errorf("the key is %q, %v in\n%s", got, err, r.out.String())
	}
	contains(t, r.out.String(), "Forwarding   https://localhost:", " to member demo-bqdq7", "export ETCDCTL_ENDPOINTS=https://localhost:",
		"export ETCDCTL_CACERT=", "export ETCDCTL_CERT=", "etcdctl endpoint status")
	s.end(r)
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}

	dir := filepath.Join(t.TempDir(), "certificates")
	r = s.start("press Ctrl+C", "connect", "demo", "--forward", "--port", "0", "--write", dir)
	s.end(r)
	got, err := os.ReadFile(filepath.Join(dir, envFile))
	if err != nil || !strings.Contains(r.out.String(), strings.SplitN(string(got), "\n", 2)[0]) {
		t.Errorf("it wrote %q, %v, and printed %s", got, err, &r.out)
	}
}

func TestConnectForwardsWithOwnCertificates(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	_, name := newNode(s)
	s.put(onNode(situation(t, "own-certificates"), name))
	r := s.start("press Ctrl+C", "connect", "demo", "--forward", "--port", "0")
	contains(t, r.out.String(), "your own: druid issues no certificates", "export ETCDCTL_ENDPOINTS=https://localhost:")
	if strings.Contains(r.out.String(), "ETCDCTL_CACERT") {
		t.Error("it names certificates that it does not have")
	}
	s.end(r)
}

func TestWhatConnectCannotForwardIsASentence(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	_, name := newNode(s)
	s.put(onNode(situation(t, "serving"), name))
	s.grant("viewer", viewing...)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for want, args := range map[string][]string{
		"--port needs --forward":                               {"--port", "2380"},
		"--port is 70000, want a port from 1 to 65535":         {"--forward", "--port", "70000"},
		"Choose another port with --port":                      {"--forward", "--port", port},
		"forward port 2379 of Pod " + s.namespace + "/demo-bq": {"--forward", "--port", "0", "--as", "viewer"},
	} {
		var errs string
		s.eventually(func() bool {
			out, all, code := s.run(append([]string{"connect", "demo"}, args...)...)
			if errs = all; code != 1 || out != "" {
				t.Fatalf("%v: exit code %d, %s", args, code, out)
			}
			return !strings.Contains(errs, "get EtcdCluster") // the authorizer knows the rights
		})
		if !strings.HasPrefix(errs, "kubectl druid connect: ") || !strings.Contains(errs, want) {
			t.Errorf("%v: %s", args, errs)
		}
	}
	lost := situation(t, "quorum-lost")
	for i := range lost.Cluster.Status.Members {
		lost.Cluster.Status.Members[i].Status = "NotReady"
	}
	lost.Cluster.Name, lost.Cluster.Namespace = "down", s.namespace
	s.setCluster(&lost.Cluster)
	_, errs, code := s.run("connect", "down", "--forward", "--port", "0")
	if contains(t, errs, "no member is ready. See what they wait for: kubectl druid", "status"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// The leader comes first. A member that failed comes last, also as the leader.
func TestWhichMemberIsForwardedTo(t *testing.T) {
	c := view.Of(situation(t, "serving"), situations.Now)
	c.Leader = "demo-lgmkl"
	for failed, want := range map[string]string{"": "demo-lgmkl demo-bqdq7 demo-sx47z", "demo-lgmkl": "demo-bqdq7 demo-sx47z demo-lgmkl",
		"demo-bqdq7": "demo-lgmkl demo-sx47z demo-bqdq7"} {
		f := forwarder{failed: failed}
		if got := strings.Join(f.candidates(c), " "); got != want {
			t.Errorf("after %q failed: %s, want %s", failed, got, want)
		}
	}
	c = view.Of(situation(t, "member-down"), situations.Now)
	if got := strings.Join((&forwarder{}).candidates(c), " "); got != "demo-bqdq7 demo-lgmkl" {
		t.Errorf("with one member down: %s", got)
	}
}
