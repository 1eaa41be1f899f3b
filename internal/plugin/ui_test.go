package plugin

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/situations"
)

// visit runs kubectl druid ui until the test ends, and opens the address that it prints.
func (s *stage) visit(args ...string) (first string, get func(path string) (int, string)) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	read, write := io.Pipe()
	root := newCommand(func() time.Time { return situations.Now })
	root.SetArgs(append([]string{"ui", "--kubeconfig", s.kubeconfig}, args...))
	root.SetOut(write)
	root.SetErr(write)
	var group errgroup.Group
	group.Go(func() error {
		if code := cli.Main(ctx, root, slog.New(slog.DiscardHandler)); code != 0 {
			s.Errorf("exit code %d", code)
		}
		return write.Close()
	})
	s.Cleanup(func() {
		cancel()
		_ = group.Wait() // a pipe in memory closes without an error
	})
	printed := bufio.NewReader(read)
	if _, err := printed.ReadString('\n'); err != nil {
		s.Fatal(err)
	}
	line, err := printed.ReadString('\n')
	if err != nil {
		s.Fatal(err)
	}
	group.Go(func() error {
		_, err := io.Copy(io.Discard, printed)
		return err
	})
	address := strings.TrimSpace(line)
	server, _, _ := strings.Cut(address, "/?")
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	fetch := func(url string) (int, string) {
		s.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			s.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			s.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			s.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	_, first = fetch(address)
	return first, func(path string) (int, string) { return fetch(server + path) }
}

func TestTheWebPageOfARealAPIServer(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	first, get := s.visit("demo")
	path := "/clusters/" + s.namespace + "/demo"
	contains(t, first, path+`"`)
	code, text := get(path)
	if contains(t, text, "● Serving for 47h", "demo-bqdq7", "revision 48,211", "Nothing to do."); code != http.StatusOK {
		t.Errorf("%d", code)
	}
	code, text = get("/")
	if contains(t, text, "Namespace "+s.namespace+": 1 cluster", path+`"`); code != http.StatusOK {
		t.Errorf("%d", code)
	}
	_, text = get("/clusters/" + s.namespace + "/other")
	contains(t, text, "It does not exist, or was deleted.")
	_, get = s.visit("--all-namespaces")
	_, text = get("/")
	contains(t, text, "All namespaces: ", path+`"`)
}

func TestTheWebPageHasTheRightsOfTheUser(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	s.grant("web-viewer", viewing...)
	_, get := s.visit("--as", "web-viewer")
	var text string
	s.eventually(func() bool {
		_, text = get("/clusters/" + s.namespace + "/demo")
		return strings.Contains(text, "n1") && strings.Contains(text, "Serving")
	})
	contains(t, text, "Leases could not be read, and what they report is unknown", "Nodes could not be read")
	_, get = s.visit("--as", "web-viewer", "--all-namespaces")
	code, text := get("/")
	if contains(t, text, "You may not read this.", "kubectl druid ui --namespace NAMESPACE"); code != http.StatusBadGateway {
		t.Errorf("%d", code)
	}
}

func TestTheWebPageHasTheBackupsThatAreListed(t *testing.T) {
	shown := webBackups(listed())
	var lanes []string
	for _, lane := range shown.Lanes {
		lanes = append(lanes, strings.Repeat("-", lane.Depth)+string(lane.Lineage))
	}
	if want := []string{string(firstLineage), "-" + string(secondLineage), "--" + string(thirdLineage)}; !slices.Equal(lanes, want) {
		t.Errorf("the lanes are %q, want %q", lanes, want)
	}
	contains(t, shown.Totals+strings.Join(shown.Notes, " ")+shown.Store+shown.Member, "3 lineages", "Gap in lineage", "eu-central-1", "demo-bqdq7")

	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "without-backup"))
	_, get := s.visit()
	_, text := get("/clusters/" + s.namespace + "/demo/backups")
	contains(t, text, "List the backups of EtcdCluster "+s.namespace+"/demo: it has no spec.backup.")
}

func TestWrongInputOfTheWebPage(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--port is 70000, want a port from 1 to 65535":                  {"ui", "--port", "70000"},
		"got 2 arguments, want at most the name of one EtcdCluster":     {"ui", "a", "b"},
		"serve the web page: listen tcp 127.0.0.1:" + port + ": bind: ": {"ui", "--port", port},
		"Choose another port with --port":                               {"ui", "--port", port},
	} {
		_, errs, code := s.run(args...)
		if code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %q", args, code, errs)
		}
	}
}
