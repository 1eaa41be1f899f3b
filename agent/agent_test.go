package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
)

type coordinationLease = coordinationv1.Lease

// quick is a configuration with the smallest permitted intervals.
func quick() config.Reloadable {
	r := config.DefaultReloadable()
	r.RenewInterval, r.LeaseDuration = config.Duration(2*time.Second), config.Duration(6*time.Second)
	r.SuperfluousGracePeriod = config.Duration(10 * time.Second)
	return r
}

// formed waits until the member Lease says that the member leads, and returns the Lease.
func (p *pod) formed() (m leases.Member) {
	p.t.Helper()
	p.eventually("the member leads", func() (err error) {
		lease := p.lease(member)
		if m, err = leases.DecodeMember(lease); err != nil {
			return err
		}
		if m.Role != leases.RoleLeader || lease.Spec.RenewTime == nil {
			return fmt.Errorf("the Lease says %q, renewed %v", m.HolderIdentity(), lease.Spec.RenewTime)
		}
		return nil
	})
	return m
}

func (p *pod) get(path string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, transport.URL(false, "127.0.0.1", p.config.AgentPort)+path, nil)
	p.must(err)
	response, err := transport.Transport{}.HTTPClient().Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	p.must(err)
	return response.StatusCode, string(body)
}

func (p *pod) etcd() *clientv3.Client {
	p.t.Helper()
	client, err := transport.Transport{}.Etcd(p.t.Context(), p.endpoint())
	p.must(err)
	p.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (p *pod) endpoint() string { return transport.URL(false, "127.0.0.1", p.config.ClientPort) }

func TestAMemberFormsReportsItsLeaseAndLeads(t *testing.T) {
	p := newPod(t, quick())
	_, stop := p.startAgent()
	m := p.formed()
	status, err := p.etcd().Status(t.Context(), p.endpoint())
	p.must(err)
	if m.ID != status.Header.MemberId || m.ClusterID != status.Header.ClusterId || m.Epoch != 1 || m.Lineage == "" || m.Rule == "" {
		t.Errorf("the Lease says %+v, etcd %+v", m, status.Header)
	}

	p.eventually("the leader publishes the list in a Formed record", func() error {
		record, err := leases.DecodeRecord(p.lease(leases.RecordName("demo")))
		switch {
		case err != nil:
			return err
		case record.Phase != leases.PhaseFormed, record.ClusterID != m.ClusterID, record.MemberList == nil:
			return fmt.Errorf("record %+v", record)
		case record.MemberList.Members[0].ID != leases.FormatID(m.ID):
			return fmt.Errorf("list %+v", record.MemberList)
		}
		return nil
	})
	if holder := p.lease(leases.LeaderName("demo")).Spec.HolderIdentity; holder == nil || *holder != member {
		t.Errorf("the leader's Lease is held by %v, want %s", holder, member)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/healthz": 200, "/metrics": 200} {
		p.eventually("an answer of "+path, func() error {
			if code, body := p.get(path); code != want {
				return fmt.Errorf("%d %s, want %d", code, body, want)
			}
			return nil
		})
	}
	p.eventually("the agent reports the same", func() error {
		_, body := p.get("/v1/status")
		var reported agent.Status
		if err := json.Unmarshal([]byte(body), &reported); err != nil {
			return fmt.Errorf("status %s: %w", body, err)
		}
		if reported.Etcd.MemberID != leases.FormatID(m.ID) || reported.Etcd.Role != "Leader" || !reported.Lease.Known || reported.Launch.PID == 0 ||
			!reported.Leading {
			return fmt.Errorf("status %s", body)
		}
		return nil
	})

	p.eventually("the floor follows the raft position", func() error {
		m, err := leases.DecodeMember(p.lease(member))
		if err != nil || m.Floor.IsZero() || m.Floor.Committed > m.Raft.Committed {
			return fmt.Errorf("floor %v, position %v: %w", m.Floor, m.Raft, err)
		}
		return nil
	})

	stop()
	if holder := p.lease(leases.LeaderName("demo")).Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("after the agent's end the leader's Lease is held by %q, want no holder", *holder)
	}
	if _, err := p.etcd().Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("without an agent etcd takes no writes: %v", err)
	}
	p.startAgent()
	p.eventually("the next agent leads", func() error {
		if holder := p.lease(leases.LeaderName("demo")).Spec.HolderIdentity; holder == nil || *holder != member {
			return fmt.Errorf("held by %v", holder)
		}
		return nil
	})
}

func TestAMemberRestartsWhileTheAPIIsAway(t *testing.T) {
	p := newPod(t, quick())
	a, _ := p.startAgent()
	before := p.formed()
	pid := a.Status().Launch.PID
	p.cut.cut()
	p.must(syscall.Kill(pid, syscall.SIGKILL))
	p.eventually("etcd serves again", func() error {
		s := a.Status()
		if !s.Etcd.Healthy || s.Launch.PID == pid {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	if got := a.Status().Etcd.MemberID; got != leases.FormatID(before.ID) {
		t.Errorf("member ID %s, want %s as before", got, leases.FormatID(before.ID))
	}
	if _, err := p.etcd().Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("put: %v", err)
	}
	p.eventually("livez, for no fault of the API is repaired by a restart of the agent", func() error {
		switch code, body := p.get("/livez"); code {
		case http.StatusOK:
			return nil
		case 0:
			return fmt.Errorf("no answer in time: %s", body)
		default:
			t.Fatalf("livez: %d %s", code, body)
			return nil
		}
	})
	p.cut.broken.Store(false)
	renewed := p.lease(member).Spec.RenewTime
	p.eventually("the Lease is renewed again", func() error {
		if now := p.lease(member).Spec.RenewTime; now.Equal(renewed) {
			return errors.New("renewTime stands still")
		}
		return nil
	})
}

// TestStrayMemberRemovedAfterGrace: a stray member is removed after the grace period.
func TestStrayMemberRemovedAfterGrace(t *testing.T) {
	p := newPod(t, quick())
	p.startAgent()
	p.formed()
	client := p.etcd()
	added := time.Now() // or a little later: the agent may see the learner before we hear that it was added
	p.eventually("a learner is added behind our back", func() error {
		_, err := client.MemberAddAsLearner(t.Context(), []string{"http://127.0.0.9:2380"})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil // the attempt before this one succeeded, and its answer was lost
		}
		return err
	})
	p.eventually("it is gone", func() error {
		list, err := client.MemberList(t.Context())
		if err != nil || len(list.Members) != 1 {
			return fmt.Errorf("%+v: %w", list, err)
		}
		return nil
	})
	if took := time.Since(added); took < time.Duration(quick().SuperfluousGracePeriod) {
		t.Errorf("removed after %s, want not before the grace period of %s", took, quick().SuperfluousGracePeriod)
	}
}

func TestALeaseOfAnotherPodIsLeftAlone(t *testing.T) {
	p := newPod(t, quick())
	p.startAgent()
	p.formed()
	_, err := p.admin.CoordinationV1().Leases(p.namespace).Patch(t.Context(), member, "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+leases.AnnotationPodUID+`":"successor"}}}`), metav1.PatchOptions{})
	p.must(err)
	version := p.lease(member).ResourceVersion
	// Three renewals would have been due.
	pause(t.Context(), 3*time.Duration(quick().RenewInterval))
	if now := p.lease(member).ResourceVersion; now != version {
		t.Errorf("resourceVersion went from %s to %s, want no write of a superseded agent", version, now)
	}
}
