package bootstrap

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
)

// act does what was decided: at most one irreversible call, which repeats as nothing where it was done before. It returns
// the order to start etcd, or nil where a new look must come first.
func (b *Bootstrapper) act(ctx context.Context, d Decision, o *observation) (*launch.Order, error) {
	switch d.Mode {
	case ModeResume:
		return b.resume(ctx, o)
	case ModeNew:
		return b.form(ctx, o)
	case ModeAdopt:
		return b.adopt(ctx, o)
	case ModeJoin:
		return b.join(ctx, o)
	case ModeReplaceSelf:
		return nil, b.replaceSelf(ctx, o)
	case ModeRejoin:
		return nil, b.moveAside(ctx, o, "removed")
	case ModeRestore:
		return b.restore(ctx, d, o)
	case ModeForceNew:
		// No observation holds the facts of this row, see the package's doc.
		return nil, fmt.Errorf("decision %s: this agent cannot act on it; use an agent that can recover clusters", d.Mode)
	default:
		return nil, nil
	}
}

// order starts etcd on the stamped volume.
func (b *Bootstrapper) order(stamp datadir.Stamp, s start) (*launch.Order, error) {
	args, err := argv(b.cfg, b.peerURL(b.cfg.Member), b.clientURL(b.cfg.Member), b.transport.Scheme(), s)
	if err != nil {
		return nil, err
	}
	b.forgetVolume() // etcd changes it from now on
	b.setIdentity(stamp)
	return &launch.Order{Version: launch.ProtocolVersion, Kind: launch.OrderStart, Path: b.cfg.EtcdPath, Argv: args}, nil
}

// moveAside clears the place for new data. Empty data may have left-overs, which go aside just the same.
func (b *Bootstrapper) moveAside(ctx context.Context, o *observation, reason string) error {
	if o.volume.report.State == datadir.Empty && !o.volume.report.Leftover {
		return nil
	}
	content := datadir.ContentOf(reason, o.volume.report)
	name, err := datadir.MoveAside(b.cfg.VolumePath, content)
	b.forgetVolume()
	if err != nil {
		return err
	}
	b.log.InfoContext(ctx, "data moved aside", "aside", name, "data", o.volume.report.String(), "reason", reason)
	return nil
}

// resumeStagger between the members of a cluster that restarts as a whole: somewhat more than an etcd needs to serve.
const resumeStagger = 700 * time.Millisecond

// stagger keeps a majority from starting at one moment. etcd's check for corruption asks each peer before it serves, and
// waits 7 s for one that has opened its port and does not serve yet; one that is not there, or serves, costs nothing.
// Without a record the name's hash stands in for the place in it.
func (b *Bootstrapper) stagger(o *observation) time.Duration {
	if record, ok := b.knownRecord(o); ok {
		return time.Duration(max(0, slices.Index(record.Members, b.cfg.Member))) * resumeStagger
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(b.cfg.Member))
	return time.Duration(hash.Sum32()%resumeSlots) * resumeStagger
}

// resumeSlots bounds the wait of a member that cannot know its place.
const resumeSlots = 5

// resume starts etcd on its data. Should the data vanish before etcd opens it, the flags let it form no cluster.
func (b *Bootstrapper) resume(ctx context.Context, o *observation) (*launch.Order, error) {
	if o.Listed == NoQuorum && !pause(ctx, b.stagger(o)) {
		return nil, context.Cause(ctx)
	}
	b.joining = joining{} // there is a log: whatever we joined as was started, and is never started without it again (R4)
	return b.order(o.volume.stamp, start{
		cluster: b.cfg.Member + "=" + b.peerURL(b.cfg.Member), token: o.volume.stamp.Token,
		maxLearners: o.volume.stamp.MaxLearners,
	})
}
