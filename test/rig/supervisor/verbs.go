package supervisor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-druid/druid/test/rig/control"
	"github.com/etcd-druid/druid/test/rig/process"
)

// verb is an order that the supervisor takes.
type verb struct {
	name string
	// params names the arguments; a last one with "…" takes the rest.
	params []string
	do     control.Handler
}

// verbs is the table of all orders.
func (s *Supervisor) verbs() map[string]control.Handler {
	table := []verb{
		{"status", nil, s.doStatus},
		{"stop-node", []string{"node"}, s.doStopNode},
		{"start-node", []string{"node"}, s.doStartNode},
		{"node-pid", []string{"node"}, s.doNodePID},
		{"freeze", []string{"node"}, s.doFreeze(true)},
		{"thaw", []string{"node"}, s.doFreeze(false)},
		{"partition", []string{"node", "peer"}, s.doPartition(true)},
		{"partition-one-way", []string{"from", "to"}, s.doPartition(false)},
		{"heal", nil, s.doHeal},
		{"stop-apiserver", nil, s.doStopAPIServer},
		{"start-apiserver", nil, s.doStartAPIServer},
		{"kill-in-pod", []string{"namespace", "pod", "container", "process", "signal"}, s.doKillInPod},
		{"volume-path", []string{"namespace", "claim"}, s.doVolumePath},
		{"load-images", []string{"archives…"}, s.doLoadImages},
	}
	handlers := map[string]control.Handler{}
	for _, v := range table {
		handlers[v.name] = v.handle
	}
	return handlers
}

// handle checks the number of arguments and bounds the time of an order.
func (v verb) handle(ctx context.Context, args []string) (string, error) {
	rest := len(v.params) > 0 && strings.HasSuffix(v.params[len(v.params)-1], "…")
	if len(args) < len(v.params) || (len(args) > len(v.params) && !rest) {
		return "", fmt.Errorf("%s takes %d arguments (%s), not %d", v.name, len(v.params), strings.Join(v.params, ", "), len(args))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return v.do(ctx, args)
}

func (s *Supervisor) doStatus(context.Context, []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, n := range s.plan.Nodes {
		power := "off"
		if m, on := s.nodes[n]; on {
			power = "on, process " + strconv.Itoa(m.pid) + " in the rig"
		}
		fmt.Fprintf(&out, "node %s: %s\n", n, power)
	}
	out.WriteString(s.cuts.String())
	return out.String(), nil
}

func (s *Supervisor) doStopNode(ctx context.Context, args []string) (string, error) {
	return "", s.powerOff(ctx, args[0])
}

func (s *Supervisor) doStartNode(ctx context.Context, args []string) (string, error) {
	if _, err := s.plan.Index(args[0]); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return "", s.powerOn(ctx, args[0])
}

func (s *Supervisor) doNodePID(_ context.Context, args []string) (string, error) {
	m, err := s.machine(args[0])
	if err != nil {
		return "", err
	}
	return strconv.Itoa(m.pid), nil
}

func (s *Supervisor) doFreeze(frozen bool) control.Handler {
	return func(_ context.Context, args []string) (string, error) {
		if _, err := s.machine(args[0]); err != nil {
			return "", err
		}
		return "", s.cgroupOf(args[0]).Freeze(frozen)
	}
}

func (s *Supervisor) doPartition(bothWays bool) control.Handler {
	return func(ctx context.Context, args []string) (string, error) {
		from, to := args[0], args[1]
		if err := s.checkCut(from, to); err != nil {
			return "", err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cuts[cut{from, to}] = true
		if bothWays {
			s.cuts[cut{to, from}] = true
		}
		return "", s.applyCuts(ctx)
	}
}

// checkCut says what is wrong with the ends of a cut.
func (s *Supervisor) checkCut(from, to string) error {
	nodes := 0
	for _, end := range []string{from, to} {
		if end == controlPlane || end == all {
			continue
		}
		if _, err := s.plan.Index(end); err != nil {
			return fmt.Errorf("%w; a node can also be cut from %q and %q", err, controlPlane, all)
		}
		nodes++
	}
	switch {
	case nodes == 0:
		return fmt.Errorf("a cut from %s to %s has no node: name one", from, to)
	case from == to:
		return fmt.Errorf("node %s cannot be cut from itself", from)
	}
	return nil
}

func (s *Supervisor) doHeal(ctx context.Context, _ []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cuts)
	return "", s.applyCuts(ctx)
}

func (s *Supervisor) doStopAPIServer(context.Context, []string) (string, error) {
	return "", s.apiserver.Stop()
}

func (s *Supervisor) doStartAPIServer(ctx context.Context, _ []string) (string, error) {
	s.apiserver.Start()
	return "", process.Poll(ctx, apiTimeout, pollInterval, s.apiReady)
}
