package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/etcd-druid/druid/test/rig/binaries"
	"github.com/etcd-druid/druid/test/rig/cgroup"
	"github.com/etcd-druid/druid/test/rig/images"
	"github.com/etcd-druid/druid/test/rig/plan"
	"github.com/etcd-druid/druid/test/rig/preflight"
	"github.com/etcd-druid/druid/test/rig/runs"
)

// Options say what rig to bring up. The zero value is a rig named "default"
// with three nodes and fast timings.
type Options struct {
	Name string
	// Nodes is how many nodes the rig has; 0 means 3.
	Nodes int
	// IPv6 gives all nodes, Pods and Services addresses of IPv6 alone.
	IPv6 bool
	// Profile is "fast" or "production"; see package plan.
	Profile string
	// Bound ends the rig with this process, however it ends. Otherwise the rig
	// lives until it is taken down.
	Bound bool
	// NoDruid leaves the product's image out.
	NoDruid bool
	// Log takes lines of progress; nil drops them.
	Log func(format string, args ...any)
}

// DefaultName is the name of a rig that is not given one.
const DefaultName = "default"

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return o
}

// Up brings a rig up and returns when its cluster can be used: all nodes
// Ready, DNS answering, images loaded. What dead runs left is cleared first.
func Up(ctx context.Context, o Options) (*Lab, error) {
	o = o.withDefaults()
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	if err := preflight.Check(cache); err != nil {
		return nil, fmt.Errorf("this machine cannot run a rig:\n%w", err)
	}
	reaped, err := runs.Reap(ctx, cache)
	if err != nil {
		// It blocks nothing: every run has a name of its own, and Claim
		// clears ours.
		o.Log("not all that dead runs left could be cleared away: %v", err)
	}
	if len(reaped) > 0 {
		o.Log("cleared away what dead runs left: %v", reaped)
	}
	p, err := newPlan(o, cache)
	if err != nil {
		return nil, err
	}
	lock, err := runs.Claim(ctx, cache, o.Name)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor has its own hold by then
	if err := prepare(ctx, o, cache, p); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.Dir))
	}
	return start(ctx, o, cache, p, lock)
}

// newPlan writes down what follows from the options alone.
func newPlan(o Options, cache string) (*plan.Plan, error) {
	if err := plan.ValidateName(o.Name); err != nil {
		return nil, err
	}
	nodes, err := plan.NodeNames(o.Nodes)
	if err != nil {
		return nil, err
	}
	timings, err := plan.ProfileTimings(o.Profile)
	if err != nil {
		return nil, err
	}
	id, err := runs.NewID()
	if err != nil {
		return nil, err
	}
	hs, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	dir := runs.Dir(cache, o.Name)
	return &plan.Plan{
		Name: o.Name, ID: id, Dir: dir, Nodes: nodes, Timings: timings, IPv6: o.IPv6,
		Rig:     filepath.Join(dir, "rig"),
		Cgroups: cgroup.At(hs, "druid-rig-"+o.Name+"-"+id).Dirs(),
	}, nil
}

// prepare builds binaries and images.
func prepare(ctx context.Context, o Options, cache string, p *plan.Plan) error {
	repo, err := binaries.RepoDir()
	if err != nil {
		return err
	}
	if p.Bin, err = (binaries.Builder{Repo: repo, Cache: cache, Progress: o.Log}).Build(ctx); err != nil {
		return err
	}
	m := images.Maker{Repo: repo, Cache: cache, Bin: p.Bin}
	if p.Pause, err = m.PauseArchive(); err != nil {
		return err
	}
	if p.Images, err = m.EtcdArchives(); err != nil {
		return err
	}
	if err := binaries.GoBuild(ctx, repo, "./test/rig", "", p.Rig); err != nil {
		return err
	}
	if o.NoDruid {
		return nil
	}
	druid, err := m.DruidArchive(ctx)
	if err != nil {
		return err
	}
	p.Images = append([]string{druid}, p.Images...)
	return nil
}
