package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/agent"
)

func TestInstallReplacesABinaryThatRuns(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "new"), filepath.Join(dir, "agent")
	for path, content := range map[string]string{source: "new", target: "old"} {
		if err := os.WriteFile(path, []byte(content), 0o555); err != nil {
			t.Fatal(err)
		}
	}
	running, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Close() }()
	if err := install(source, target); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(target)
	if err != nil || string(content) != "new" {
		t.Errorf("got %q, %v, want new", content, err)
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("mode %v, %v, want 0555", info.Mode(), err)
	}
	old := make([]byte, 8)
	if n, _ := running.Read(old); string(old[:n]) != "old" {
		t.Errorf("who runs the old one sees %q", old[:n])
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: want no temporary file left", entries, err)
	}
}

func TestInstallThatFailsLeavesTheOldOne(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "agent")
	if err := os.WriteFile(target, []byte("old"), 0o555); err != nil {
		t.Fatal(err)
	}
	// A directory can be opened but not read.
	if err := install(t.TempDir(), target); err == nil {
		t.Error("got none, want an error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the old binary alone", entries, err)
	}
}

func full() agent.Status {
	return agent.Status{
		Namespace: "default", Cluster: "demo", Member: "demo-abcde", PodUID: "p", AgentVersion: "v1",
		Launch: agent.LaunchStatus{Connected: true, State: "running", PID: 12},
		Etcd: agent.EtcdStatus{Reachable: true, Healthy: true, ClusterID: "c", MemberID: "a", Role: "Leader", Leader: "a", Version: "3.6.16",
			Revision: 7, Errors: []string{"NOSPACE"}},
		Start:   agent.StartStatus{Mode: "Resume", Rule: "resume", Data: "intact"},
		Lease:   agent.LeaseStatus{Known: true, HolderIdentity: "a:Leader", PodUID: "p"},
		Leading: true,
	}
}

func TestStatusPrintsWhatTheAgentReports(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/status" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(full())
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		root := Root(slog.New(slog.NewTextHandler(&out, nil)), nil)
		root.SetOut(&out)
		root.SetArgs(append([]string{"status", "--host", host, "--port", port}, args...))
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	var got agent.Status
	if err := json.Unmarshal([]byte(run("--output", "json")), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, full()); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
	for _, want := range []string{
		"MEMBER      default/demo-abcde", "LAUNCH      running (PID 12)", "START       Resume (resume)", "ETCD        3.6.16 healthy",
		"ERRORS      NOSPACE", "LEASE       a:Leader", "DUTIES      this agent leads",
	} {
		if table := run(); !strings.Contains(table, want) {
			t.Errorf("want %q in\n%s", want, table)
		}
	}
}

func TestStatusReportsWhatIsMissing(t *testing.T) {
	var out bytes.Buffer
	s := full()
	s.Etcd = agent.EtcdStatus{Problem: "etcd does not run"}
	s.Launch = agent.LaunchStatus{}
	s.Lease.PodUID, s.Lease.Removal = "successor", "requested"
	if err := printTable(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not connected", "etcd does not run", "belongs to another Pod: successor", "REMOVAL  removal requested"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}
