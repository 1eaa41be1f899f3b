package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/test/member"
)

func TestTheOnlyMemberKeepsTheLeadership(t *testing.T) {
	m := member.Start(t, member.Minors[len(member.Minors)-1], member.Options{})
	for want, args := range map[string][]string{
		"no other healthy voter":                        nil,
		"the requested member cannot lead: m leads alr": {"--to", member.Name},
		"no voter of the cluster has this name: other":  {"--to", "other"},
		"[tls-dir tls-name]":                            {"--tls-dir", "/tls"},
	} {
		if _, err := moved(t, m, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}

// moved runs step-down in the Pod of a member.
func moved(t *testing.T, m *member.Member, args ...string) (leader string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := Root(slog.New(slog.DiscardHandler), nil)
	root.SetOut(&out)
	root.SetArgs(append([]string{"step-down", "--endpoint", m.Endpoint}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		return "", err
	}
	var answer struct{ Member string }
	err = json.Unmarshal(out.Bytes(), &answer)
	return answer.Member, err
}

func TestTheNamedMemberLeads(t *testing.T) {
	all := member.StartCluster(t, member.Minors[len(member.Minors)-1], 3)
	leader := func() int {
		for until := time.Now().Add(time.Minute); time.Now().Before(until); {
			for i, m := range all {
				status, err := m.Client.Status(t.Context(), m.Endpoint)
				if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
					return i
				}
			}
		}
		t.Fatal("no member leads")
		return 0
	}
	old := leader()
	next := (old + 1) % len(all)
	if _, err := moved(t, all[next], "--to", fmt.Sprintf("etcd-%d", next)); err == nil || !strings.Contains(err.Error(), "the member of this Pod does not lead") {
		t.Errorf("on a follower: %v", err)
	}
	if got, err := moved(t, all[old], "--to", fmt.Sprintf("etcd-%d", next)); err != nil || got != fmt.Sprintf("etcd-%d", next) {
		t.Errorf("got %s, %v", got, err)
	}
	if now := leader(); now != next {
		t.Errorf("etcd-%d leads, want etcd-%d", now, next)
	}
}

func TestStepDownDialsAsItsFlagsSay(t *testing.T) {
	if got := (stepDown{}).transport(); got.Client != nil || got.Plaintext {
		t.Errorf("without TLS: %v", got)
	}
	if got := (stepDown{tlsDir: config.TLSSource + "/client", tlsName: "demo-client.default.svc", plaintext: true}).transport(); got.Client == nil ||
		!got.Plaintext {
		t.Errorf("with TLS: %v", got)
	}
}
