package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// nodeFaults take the member away that the node carries. They happen if each node carries one.
var nodeFaults = []chaosFault{
	{"a node is powered off and on", onNode(whole((*lab.Lab).StopNode), whole((*lab.Lab).StartNode), theMember)},
	{"a node is frozen and goes on", onNode(whole((*lab.Lab).Freeze), whole((*lab.Lab).Thaw), theMember)},
	{"a node is cut off", onNode(cutFrom((*lab.Lab).Partition, lab.All), healed, theMember)},
	{"a node is cut off from the API server", onNode(cutFrom((*lab.Lab).Partition, lab.ControlPlane), healed, theAPI)},
	{"a node is cut off from another node", onNode((*lab.Lab).Partition, healed, thePeer)},
	{"what a node sends is lost", onNode(cutFrom((*lab.Lab).PartitionOneWay, lab.All), healed, theMember)},
	{"what is sent to a node is lost", onNode(cutOffFrom((*lab.Lab).PartitionOneWay, lab.All), healed, theMember)},
	{"what a node sends to the API server is lost", onNode(cutFrom((*lab.Lab).PartitionOneWay, lab.ControlPlane), healed, theAPI)},
	{"what a node sends to another node is lost", onNode((*lab.Lab).PartitionOneWay, healed, thePeer)},
}

// longNodeFaults are those that last longer than half a minute, with the time until the member votes again.
var longNodeFaults = []chaosFault{
	{"a node is frozen past its Leases and goes on", onNodeFor(pastLease, whole((*lab.Lab).Freeze), whole((*lab.Lab).Thaw), theMember)},
}

// pastLease is longer than a Lease of the agents lasts. The Leases of the node and of the member expire.
func pastLease(t *testing.T, ch *chaos, draw *rand.Rand) time.Duration {
	t.Helper()
	var lease time.Duration
	ch.withAPI(func() { lease = ch.cluster.AgentTimings(t).LeaseDuration })
	return lease + time.Duration(1+draw.IntN(10))*time.Second
}

// briefly is up to 15 seconds.
func briefly(_ *testing.T, _ *chaos, draw *rand.Rand) time.Duration {
	return time.Duration(5+draw.IntN(10)) * time.Second
}

// nodeAct does something to a node. The peer is another node.
type nodeAct func(l *lab.Lab, ctx context.Context, node, peer string) error

func whole(act func(*lab.Lab, context.Context, string) error) nodeAct {
	return func(l *lab.Lab, ctx context.Context, node, _ string) error { return act(l, ctx, node) }
}

func cutFrom(cut func(*lab.Lab, context.Context, string, string) error, end string) nodeAct {
	return func(l *lab.Lab, ctx context.Context, node, _ string) error { return cut(l, ctx, node, end) }
}

func cutOffFrom(cut func(*lab.Lab, context.Context, string, string) error, end string) nodeAct {
	return func(l *lab.Lab, ctx context.Context, node, _ string) error { return cut(l, ctx, end, node) }
}

var healed nodeAct = func(l *lab.Lab, ctx context.Context, _, _ string) error { return l.Heal(ctx) }

// onNode is a fault of the node that carries the member. It lasts up to 15 seconds, after it took effect.
func onNode(begin, end nodeAct, reach func(context.Context, *chaos, nodeFault) error) func(*testing.T, *chaos, string, *rand.Rand) {
	return onNodeFor(briefly, begin, end, reach)
}

// onNodeFor is a fault of the node that carries the member, for a time. What reach connects is connected before, and is not any more meanwhile.
func onNodeFor(
	span func(*testing.T, *chaos, *rand.Rand) time.Duration, begin, end nodeAct, reach func(context.Context, *chaos, nodeFault) error,
) func(*testing.T, *chaos, string, *rand.Rand) {
	return func(t *testing.T, ch *chaos, member string, draw *rand.Rand) {
		lasts := span(t, ch, draw)
		f := nodeFault{member: member, node: ch.about(member).node, etcd: ch.cluster.Etcd(t, member)}
		others := slices.DeleteFunc(slices.Clone(rig.Lab.Nodes()), func(n string) bool { return n == f.node })
		f.peer = others[draw.IntN(len(others))]
		harness.Eventually(t, healWithin, fmt.Sprintf("a connection, before %s is hit", f.node), func(ctx context.Context) error { return reach(ctx, ch, f) })
		if err := begin(rig.Lab, t.Context(), f.node, f.peer); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := end(rig.Lab, context.WithoutCancel(t.Context()), f.node, f.peer); err != nil {
				t.Error(err)
			}
		}()
		harness.Eventually(t, time.Minute, fmt.Sprintf("no connection, after %s is hit", f.node), func(ctx context.Context) error {
			if reach(ctx, ch, f) == nil {
				return errors.New("there is one")
			}
			return nil
		})
		ch.lasts(t, lasts)
	}
}

// nodeFault is what a fault of a node hits.
type nodeFault struct {
	member, node, peer string
	etcd               *clientv3.Client // of the member
}

// theMember is reached if it answers.
func theMember(ctx context.Context, ch *chaos, f nodeFault) error {
	return ch.cluster.Answers(ctx, f.etcd, f.member)
}

// theAPI is reached if a program on the node connects to the API server.
func theAPI(ctx context.Context, ch *chaos, f nodeFault) error {
	ch.api.RLock() // it is not down for another reason
	defer ch.api.RUnlock()
	return connects(ctx, f.node, rig.Lab.Network().ControlPlane, 443)
}

// kubeletPort is where each kubelet listens.
const kubeletPort = 10250

// thePeer is reached if a program on the node connects to the kubelet of the other node.
func thePeer(ctx context.Context, _ *chaos, f nodeFault) error {
	return connects(ctx, f.node, rig.Lab.Network().Node(slices.Index(rig.Lab.Nodes(), f.peer)+1), kubeletPort)
}

func connects(ctx context.Context, node, address string, port int) error {
	cmd, err := rig.Lab.ExecNodeCmd(ctx, node, "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+address+"/"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	return cmd.Run()
}
