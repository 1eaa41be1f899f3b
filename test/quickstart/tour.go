package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// The sample that the tour applies, and where druid lives.
const (
	sample    = "docs/samples/demo.yaml"
	cluster   = "demo"
	namespace = "default"
	size      = 3
	system    = "druid-system"
	ofCluster = leases.LabelCluster + "=" + cluster
)

// The key that must survive, and what it holds.
const (
	key   = "story"
	value = "written before the disk was lost"
)

// tour is the story and what its steps pass on.
type tour struct {
	*narrator
	lab    *lab.Lab
	leases *watch
	// once gives the tour a rig of its own that ends with it; reused says that the rig is one of an earlier time.
	once, reused bool
	// removal candidate is the member whose disk is destroyed.
	affected string
}

func (t *tour) bringUp(ctx context.Context) error {
	t.begin("A Kubernetes of three nodes")
	var err error
	if t.lab, err = t.rig(ctx); err != nil {
		return err
	}
	if t.leases, err = newWatch(t.lab.Kubeconfig()); err != nil {
		return err
	}
	t.say("From here on, kubectl stands for: go run ./test/rig kubectl --")
	return t.kubectl(ctx, "get", "nodes", "-o", "wide")
}

// rig finds the rig of an earlier time, or brings one up.
func (t *tour) rig(ctx context.Context) (*lab.Lab, error) {
	if !t.once {
		if l, err := lab.Attach(rigName()); err == nil {
			t.reused = true
			t.say("It is running already, from an earlier time. Only druid's image is built again.")
			return l, l.LoadDruid(ctx)
		}
	}
	t.say("API server, controllers, scheduler, DNS, and three nodes with containerd and kubelet each, in namespaces of\n" +
		"   this machine. The first time all of it is built from source, which takes about 15 minutes on two cores.")
	o := lab.Options{Name: rigName(), Log: t.progress}
	if t.once {
		o.Name, o.Bound = fmt.Sprintf("tour-%d", os.Getpid()), true
	}
	return lab.Up(ctx, o)
}

func (t *tour) install(ctx context.Context) error {
	t.begin("Install druid")
	if err := t.kubectl(ctx, "apply", "-k", "manifests/install"); err != nil {
		return err
	}
	if t.reused {
		// The image's name stays the same from build to build, so Pods of an earlier time must be reported.
		if err := t.quietly(ctx, "-n", system, "rollout", "restart", "deployment/druid"); err != nil {
			return err
		}
	}
	return t.kubectl(ctx, "-n", system, "rollout", "status", "deployment/druid", "--timeout=300s")
}

func (t *tour) form(ctx context.Context) error {
	t.begin("Form a cluster of three")
	if err := t.kubectl(ctx, "apply", "-f", sample); err != nil {
		return err
	}
	t.say("druid drew the names of the members, wrote them into the record, and made Leases, volumes and Pods. From now on\n" +
		"   the agents decide: one forms the cluster, the others join as learners and are promoted.")
	begun := time.Now()
	if err := t.follow(ctx, func(m members) bool { return m.voters() == size && m.leader() != "" }); err != nil {
		return err
	}
	if err := t.healthy(ctx); err != nil {
		return err
	}
	t.progress("three voters, %.1f s after the cluster was applied", time.Since(begun).Seconds())
	return nil
}

func (t *tour) look(ctx context.Context) error {
	t.begin("What Kubernetes reports, and what etcd reports")
	t.say("The Leases are the record: who is in, under which ID and in which role, and when each was last renewed.")
	for _, args := range [][]string{
		{"get", "leases", "-l", ofCluster},
		{"get", "etcdcluster", cluster},
		{"get", "pods,pvc", "-l", ofCluster},
	} {
		if err := t.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	leader, err := t.await(ctx, members.leader)
	if err != nil {
		return err
	}
	return t.etcdctl(ctx, leader, "endpoint", "status", "--cluster", "-w", "table")
}

func (t *tour) write(ctx context.Context) error {
	t.begin("Write something to keep")
	leader, err := t.await(ctx, members.leader)
	if err != nil {
		return err
	}
	return t.etcdctl(ctx, leader, "put", key, value)
}

func (t *tour) destroyAndHeal(ctx context.Context) error {
	t.begin("Destroy a disk")
	var err error
	if t.affected, err = t.await(ctx, members.follower); err != nil {
		return err
	}
	before, err := t.leases.members(ctx)
	if err != nil {
		return err
	}
	lost := before[t.affected].ID
	t.say("The volume of %s goes, and its Pod with it. Its data is lost for good; its member ID was %s.", t.affected, leases.FormatID(lost))
	begun := time.Now()
	if err := t.kubectl(ctx, "delete", "pvc", t.affected, "--wait=false"); err != nil {
		return err
	}
	if err := t.kubectl(ctx, "delete", "pod", t.affected, "--wait=false", "--ignore-not-found"); err != nil {
		return err
	}
	t.say("druid makes volume and Pod again. The agent finds an empty disk where etcd's list has a member: it removes the old\n" +
		"   ID, joins as a learner under a new one, and is promoted. It never starts the old ID on an empty disk.")
	healed := func(m members) bool {
		return m[t.affected].ID != lost && m.voters() == size && m.leader() != ""
	}
	if err := t.follow(ctx, healed); err != nil {
		return err
	}
	if err := t.healthy(ctx); err != nil {
		return err
	}
	t.progress("healed and voting, %.1f s after the disk was destroyed", time.Since(begun).Seconds())
	return t.kubectl(ctx, "get", "leases", "-l", ofCluster)
}

func (t *tour) read(ctx context.Context) error {
	t.begin("Read it back, from the member that lost its disk")
	return t.etcdctl(ctx, t.affected, "get", key)
}

func (t *tour) showMore() {
	t.begin("Go on")
	fmt.Fprintf(t.out, `
   All of it is left running. Try:

     go run ./test/rig kubectl -- get leases -l %[1]s
     go run ./test/rig kubectl -- describe etcdcluster %[2]s
     go run ./test/rig kubectl -- exec %[3]s -c agent -- agent status
     go run ./test/rig kubectl -- logs %[3]s -c agent
     go run ./test/rig kubectl -- scale etcdcluster %[2]s --replicas=5
     go run ./test/rig stop-node n2      # pull its plug; start-node n2 plugs it in again
     go run ./test/rig partition n1 n3   # cut two nodes from each other; heal connects them again
     go run ./test/rig --help            # freeze, kill, stop the API server, …

   make quickstart-down ends it.
`, ofCluster, cluster, t.affected)
}

// healthy waits until druid too calls the cluster whole.
func (t *tour) healthy(ctx context.Context) error {
	return t.quietly(ctx, "wait", "etcdcluster/"+cluster, "--for=condition=AllMembersReady", "--timeout=180s")
}
