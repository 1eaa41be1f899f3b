package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCutsBecomeRules(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cuts cuts
		want []string
	}{
		"no cut drops nothing": {cuts{}, nil},
		"two nodes lose both directions, and nothing else": {
			cuts{{"n1", "n2"}: true, {"n2", "n1"}: true},
			[]string{`iifname "vn1" oifname "vn2" drop`, `iifname "vn2" oifname "vn1" drop`},
		},
		"a node without an apiserver keeps its Pod network": {
			cuts{{"n1", controlPlane}: true, {controlPlane, "n1"}: true},
			[]string{
				`iifname "vn1" tcp dport 443 drop`, `iifname "vn1" tcp sport 10250 drop`,
				`oifname "vn1" tcp dport 10250 drop`, `oifname "vn1" tcp sport 443 drop`,
			},
		},
		"a node that is cut from all loses its cable in every hook": {
			cuts{{"n3", all}: true, {all, "n3"}: true},
			[]string{`iifname "vn3" drop`, `oifname "vn3" drop`, `iifname "vn3" drop`, `oifname "vn3" drop`},
		},
		"one way between two nodes loses what the first sends": {
			cuts{{"n2", "n1"}: true},
			[]string{`iifname "vn2" oifname "vn1" drop`},
		},
		"what a node sends to the API server is lost": {
			cuts{{"n1", controlPlane}: true},
			[]string{`iifname "vn1" tcp dport 443 drop`, `iifname "vn1" tcp sport 10250 drop`},
		},
		"what the API server sends to a node is lost": {
			cuts{{controlPlane, "n1"}: true},
			[]string{`oifname "vn1" tcp dport 10250 drop`, `oifname "vn1" tcp sport 443 drop`},
		},
		"what a node sends is lost": {
			cuts{{"n3", all}: true},
			[]string{`iifname "vn3" drop`, `iifname "vn3" drop`},
		},
		"what is sent to a node is lost": {
			cuts{{all, "n3"}: true},
			[]string{`oifname "vn3" drop`, `oifname "vn3" drop`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for line := range strings.SplitSeq(tt.cuts.ruleset(), "\n") {
				if strings.HasSuffix(line, " drop") {
					got = append(got, strings.TrimSpace(line))
				}
			}
			if d := cmp.Diff(got, tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestCutsAreDescribed(t *testing.T) {
	t.Parallel()
	c := cuts{{"n2", "n1"}: true, {"n1", "n2"}: true, {"n3", all}: true, {controlPlane, "n1"}: true}
	if d := cmp.Diff(c.String(), "partition: control-plane -> n1\npartition: n1 | n2\npartition: n3 -> all\n"); d != "" {
		t.Error(d)
	}
}

func TestProcessesOfFindsOnlyTheContainersOwn(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	for pid, p := range map[string]struct{ cgroup, cmdline string }{
		"10": {"4:memory:/kubepods/pod1/abc\n", "/usr/local/bin/etcd\x00--name=x\x00"},
		"11": {"4:memory:/kubepods/pod1/abc\n", "/agent\x00run\x00"},
		"12": {"4:memory:/kubepods/pod2/def\n", "/usr/local/bin/etcd\x00"},
		"13": {"4:memory:/\n", "etcd\x00"},
	} {
		dir := filepath.Join(proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]string{"cgroup": p.cgroup, "cmdline": p.cmdline} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := processesOf(proc, "abc", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, []int{10}); d != "" {
		t.Error(d)
	}
}

func TestParseSignal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]syscall.Signal{
		"KILL": syscall.SIGKILL, "sigstop": syscall.SIGSTOP, "18": syscall.SIGCONT, "SIGNAL": 0, "0": 0, "-9": 0,
	} {
		got, err := parseSignal(in)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseSignal(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
}
