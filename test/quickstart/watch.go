package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/etcd-druid/druid/leases"
)

// maxWait bounds one chapter. Forming and healing take about ten seconds; images are loaded by then.
const maxWait = 3 * time.Minute

// watch reads the Leases of the members.
type watch struct {
	leases coordinationclient.LeaseInterface
}

func newWatch(kubeconfig []byte) (*watch, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the rig's kubeconfig: %w", err)
	}
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for Leases: %w", err)
	}
	return &watch{leases: client.Leases(namespace)}, nil
}

// members are what the member Leases say, by name.
type members map[string]leases.Member

func (w *watch) members(ctx context.Context) (members, error) {
	list, err := w.leases.List(ctx, metav1.ListOptions{
		LabelSelector: ofCluster + "," + leases.LabelComponent + "=" + string(leases.ComponentMember),
	})
	if err != nil {
		return nil, fmt.Errorf("list the member Leases: %w", err)
	}
	all := members{}
	for i := range list.Items {
		m, err := leases.DecodeMember(&list.Items[i])
		if err != nil {
			return nil, err
		}
		all[list.Items[i].Name] = m
	}
	return all, nil
}

func (m members) names() []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m members) withRole(role leases.Role) []string {
	return slices.DeleteFunc(m.names(), func(name string) bool { return m[name].ID == 0 || m[name].Role != role })
}

func (m members) voters() int {
	return len(m.withRole(leases.RoleLeader)) + len(m.withRole(leases.RoleMember))
}

// leader is the only member that calls itself so, or empty.
func (m members) leader() string {
	if leaders := m.withRole(leases.RoleLeader); len(leaders) == 1 {
		return leaders[0]
	}
	return ""
}

// follower is a voter that does not lead, or empty.
func (m members) follower() string {
	if followers := m.withRole(leases.RoleMember); len(followers) > 0 {
		return followers[0]
	}
	return ""
}

// follow prints what changes in the member Leases until they are as they should be.
func (t *tour) follow(ctx context.Context, done func(members) bool) error {
	last := map[string]string{}
	return t.until(ctx, done, func(now members) { t.inform(last, now) })
}

// until looks at the member Leases until they are as they should be, and shows each look to see.
func (t *tour) until(ctx context.Context, done func(members) bool, see func(members)) error {
	limit, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var failed error
	for {
		now, err := t.leases.members(limit)
		if limit.Err() == nil {
			failed = err
		}
		if err == nil {
			see(now)
			if done(now) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			if ctx.Err() == nil {
				t.diagnose(ctx)
			}
			return fmt.Errorf("members of %s: not as they should be after %s: %w", cluster, maxWait, errors.Join(context.Cause(limit), failed))
		}
	}
}

// await is a member of a role, as soon as there is one: while another takes the lead, no member has it for a moment.
func (t *tour) await(ctx context.Context, who func(members) string) (string, error) {
	name := ""
	err := t.until(ctx, func(members) bool { return name != "" }, func(now members) { name = who(now) })
	return name, err
}

// report prints what is new since last, which it brings up to date.
func (t *tour) inform(last map[string]string, now members) {
	for _, name := range now.names() {
		m := now[name]
		line := m.HolderIdentity()
		if line == "" {
			line = "not in the cluster yet"
		}
		if m.Rule != "" {
			line += ", rule " + m.Rule
		}
		if m.Reason != "" {
			line += ": " + m.Reason
		}
		if last[name] != line {
			t.progress("%s: %s", name, line)
			last[name] = line
		}
	}
}
