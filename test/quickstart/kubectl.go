package main

import (
	"context"
	"fmt"
	"strings"
)

// kubectl prints a command, runs it and prints what it says.
func (t *tour) kubectl(ctx context.Context, args ...string) error {
	t.typed(append([]string{"kubectl"}, args...)...)
	cmd := t.lab.KubectlCmd(ctx, args...)
	out := t.output()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// attempts of etcdctl, which gives up after five seconds: a reader too would type it again on a busy machine.
const attempts = 5

// etcdctl runs etcd's own client in the etcd container of a member.
func (t *tour) etcdctl(ctx context.Context, member string, args ...string) (err error) {
	for range attempts {
		if err = t.kubectl(ctx, append([]string{"exec", member, "-c", "etcd", "--", "etcdctl"}, args...)...); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// quietly runs a command that is no part of the story.
func (t *tour) quietly(ctx context.Context, args ...string) error {
	_, err := t.lab.Kubectl(ctx, args...)
	return err
}

// diagnose prints what you would look at when something takes too long.
func (t *tour) diagnose(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "leases,pods,pvc", "-l", ofCluster},
		{"describe", "etcdcluster", cluster},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"-n", system, "logs", "deployment/druid", "--tail=20"},
	} {
		if err := t.kubectl(ctx, args...); err != nil {
			t.progress("%v", err)
		}
	}
}
