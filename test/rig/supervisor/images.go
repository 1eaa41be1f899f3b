package supervisor

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/test/rig/node"
)

func (s *Supervisor) images() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.plan.Images)
}

// doLoadImages imports archives into all nodes: at once into those that are
// on, and at their next power-on into the others.
func (s *Supervisor) doLoadImages(ctx context.Context, archives []string) (string, error) {
	s.mu.Lock()
	on := map[string]int{}
	for name, m := range s.nodes {
		on[name] = m.pid
	}
	for _, a := range archives {
		s.plan.Images = append(slices.DeleteFunc(s.plan.Images, func(b string) bool { return node.SameImage(a, b) }), a)
	}
	err := s.plan.Save()
	s.mu.Unlock()
	if err != nil {
		return "", err
	}
	g, ctx := errgroup.WithContext(ctx)
	for name, pid := range on {
		g.Go(func() error { return s.importInto(ctx, name, pid, archives) })
	}
	return "", g.Wait()
}

func (s *Supervisor) importInto(ctx context.Context, name string, pid int, archives []string) error {
	for _, a := range archives {
		cmd := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(pid), "-m", "-n", "--",
			"ctr", "-n", "k8s.io", "images", "import", a)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("load image %s into node %s: %w: %s", a, name, err, strings.TrimSpace(string(out)))
		}
		if err := node.RememberImage(s.plan, name, a); err != nil {
			return fmt.Errorf("load image %s into node %s: %w", a, name, err)
		}
	}
	return nil
}
