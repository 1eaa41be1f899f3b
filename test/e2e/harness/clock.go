package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/clock"
)

// StepClock steps the wall clocks of a member's etcd, launch and agent, counted from the machine's clock. Processes that start later have
// the machine's clock.
func (c *Cluster) StepClock(ctx context.Context, t testing.TB, member string, by time.Duration) error {
	t.Helper()
	pod, err := c.Pod(ctx, member)
	if err != nil {
		return err
	}
	var all error
	for _, program := range []Program{Etcd, Launch, Agent} {
		all = errors.Join(all, stepAll(ctx, string(pod.UID), program, by))
	}
	return all
}

// StepDruid steps the wall clock of the druid that works.
func (r *Rig) StepDruid(ctx context.Context, t testing.TB, by time.Duration) error {
	t.Helper()
	return stepAll(ctx, string(r.DruidLeader(t).UID), Druid, by)
}

// DruidHolder is the name of the Pod of the druid that works.
func (r *Rig) DruidHolder(ctx context.Context) (string, error) {
	holder, err := r.druidHolder(ctx)
	name, _, _ := strings.Cut(holder, "_") // client-go's identity is <Pod name>_<UUID>
	return name, err
}

// stepAll steps the clocks of a program's processes in a Pod.
func stepAll(ctx context.Context, podUID string, program Program, by time.Duration) error {
	pids, err := Processes(podUID, program)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("no process %s runs", program)
	}
	for _, pid := range pids {
		err = errors.Join(err, clock.Step(ctx, pid, by))
	}
	return err
}
