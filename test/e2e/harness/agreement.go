package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/leases"
)

// View is a cluster as someone sees it.
type View struct {
	ClusterID string
	Members   map[string]ViewedMember
}

// ViewedMember is one member as someone sees it.
type ViewedMember struct {
	ID   string
	Role leases.Role
}

// IDs of the members by name.
func (v View) IDs() map[string]string {
	ids := map[string]string{}
	for name, m := range v.Members {
		ids[name] = m.ID
	}
	return ids
}

// Leader is the name of the leader, or empty.
func (v View) Leader() string {
	for name, m := range v.Members {
		if m.Role == leases.RoleLeader {
			return name
		}
	}
	return ""
}

// Follower is the name of a voter that does not lead, or empty.
func (v View) Follower() string {
	for name, m := range v.Members {
		if m.Role == leases.RoleMember {
			return name
		}
	}
	return ""
}

// Agree waits until etcd itself, the Leases, the record and the status report the same of names, IDs, roles and cluster,
// and returns that.
func (c *Cluster) Agree(t testing.TB, replicas int, within time.Duration) View {
	t.Helper()
	c.AwaitReady(t, replicas, within)
	etcd := c.Etcd(t)
	defer etcd.Close()
	var agreed View
	Eventually(t, within, c.String()+" of one mind", func(ctx context.Context) (err error) {
		agreed, err = c.agree(ctx, etcd, replicas)
		return err
	})
	return agreed
}

func (c *Cluster) agree(ctx context.Context, etcd *clientv3.Client, replicas int) (View, error) {
	truth, err := viewOfEtcd(ctx, etcd)
	if err != nil {
		return View{}, err
	}
	if len(truth.Members) != replicas || truth.Leader() == "" {
		return View{}, differ("etcd's member list", truth, fmt.Sprint(replicas, " members with a leader"))
	}
	for source, look := range map[string]func(context.Context) (View, error){
		"Leases": c.viewOfLeases, "status": c.viewOfStatus,
	} {
		view, err := look(ctx)
		if err != nil {
			return View{}, err
		}
		if diff := cmp.Diff(truth, view); diff != "" {
			return View{}, fmt.Errorf("etcd and the %s differ (-etcd +%s):\n%s", source, source, diff)
		}
	}
	return truth, nil
}

// viewOfEtcd asks for a linearizable member list and every member for itself.
func viewOfEtcd(ctx context.Context, etcd *clientv3.Client) (View, error) {
	list, err := etcd.MemberList(ctx)
	if err != nil {
		return View{}, fmt.Errorf("member list: %w", err)
	}
	view := View{ClusterID: leases.FormatID(list.Header.ClusterId), Members: map[string]ViewedMember{}}
	for _, m := range list.Members {
		if m.Name == "" {
			return View{}, fmt.Errorf("member %x at %v never started", m.ID, m.PeerURLs)
		}
		status, err := etcd.Status(ctx, Endpoint(m.Name))
		if err != nil {
			return View{}, fmt.Errorf("status of %s: %w", m.Name, err)
		}
		role := leases.RoleMember
		switch {
		case status.Header.MemberId != m.ID || status.Header.ClusterId != list.Header.ClusterId:
			return View{}, fmt.Errorf("%s says it is %x of %x, the list says %x of %x",
				m.Name, status.Header.MemberId, status.Header.ClusterId, m.ID, list.Header.ClusterId)
		case status.IsLearner != m.IsLearner:
			return View{}, fmt.Errorf("%s learner: it says %t, the list says %t", m.Name, status.IsLearner, m.IsLearner)
		case status.IsLearner:
			role = leases.RoleLearner
		case status.Leader == m.ID:
			role = leases.RoleLeader
		}
		view.Members[m.Name] = ViewedMember{ID: leases.FormatID(m.ID), Role: role}
	}
	return view, nil
}

// viewOfLeases reads the record and the Leases of the members that it lists.
func (c *Cluster) viewOfLeases(ctx context.Context) (View, error) {
	record, err := c.Record(ctx)
	if err != nil {
		return View{}, err
	}
	if record.Phase != leases.PhaseFormed || record.Replacing != nil {
		return View{}, differ("the record", fmt.Sprintf("%+v", record), "Formed, with no member that replaces itself")
	}
	view := View{ClusterID: leases.FormatID(record.ClusterID), Members: map[string]ViewedMember{}}
	for _, name := range record.Members {
		member, err := c.Member(ctx, name)
		if err != nil {
			return View{}, err
		}
		if member.ClusterID != record.ClusterID {
			return View{}, differ("the cluster ID of Lease "+name, leases.FormatID(member.ClusterID), view.ClusterID)
		}
		view.Members[name] = ViewedMember{ID: leases.FormatID(member.ID), Role: member.Role}
	}
	return view, nil
}

func (c *Cluster) viewOfStatus(ctx context.Context) (View, error) {
	cluster, err := c.Get(ctx)
	if err != nil {
		return View{}, err
	}
	view := View{ClusterID: cluster.Status.ClusterID, Members: map[string]ViewedMember{}}
	for _, m := range cluster.Status.Members {
		view.Members[m.Name] = ViewedMember{ID: m.ID, Role: leases.Role(m.Role)}
	}
	return view, nil
}
