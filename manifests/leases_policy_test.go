package manifests

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// leaseAttempt is a merge patch of a Lease with the token of an agent.
type leaseAttempt struct {
	cluster, lease, patch string
}

// An agent reports for its own member and Pod, and takes part in what druid orders. The cluster demo has formed, and recovering is carrying out a
// recovery order.
func TestATokenOfAnAgentKeepsToItsOwn(t *testing.T) {
	in := install(t, env.APIServer(t))
	for name, record := range map[string]leases.Record{
		"demo":       {Phase: leases.PhaseFormed, ClusterID: 7, Epoch: 1, FormedEpoch: 1, Nonce: "n", Lineage: "00000001-n", MaxLearners: 16},
		"recovering": {Phase: leases.PhaseFormed, ClusterID: 7, Epoch: 1, FormedEpoch: 1, Nonce: "n", Lineage: "00000001-n", MaxLearners: 16},
	} {
		in.makeLeases(t, name, record)
	}
	for _, name := range []string{"demo", "recovering"} {
		role, binding := in.agentsPermissions(t, in.cluster.Namespace)
		role.Name, binding.Name, binding.RoleRef.Name, binding.RoleRef.APIGroup = AgentName(name), AgentName(name), AgentName(name), "rbac.authorization.k8s.io"
		binding.Subjects[0].Name = AgentName(name)
		role.Rules[0].ResourceNames = nil
		for _, object := range []client.Object{role, binding} {
			if err := in.admin.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	as := func(cluster, pod, uid string) client.Client {
		return clientAs(t, boundTo(in.config, pod, uid), "system:serviceaccount:"+in.cluster.Namespace+":"+AgentName(cluster))
	}
	try := func(c client.Client, a leaseAttempt) func() error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: in.cluster.Namespace, Name: a.lease}}
		return func() error {
			return c.Patch(t.Context(), lease.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(a.patch)), client.DryRunAll)
		}
	}
	note := func(key, value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, leases.Prefix+key, value)
	}
	remove := func(key string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, leases.Prefix+key)
	}
	claim := func(uid string) string {
		return note("recovery-attempt", `{"order":"2-n","nonce":"a","podUID":"`+uid+`","clusterID":"abc"}`)
	}
	own, other := "demo-x7k2q", "demo-other"
	awaited := leaseAttempt{"demo", other, note("revision", "9")}
	inForce(t, "druid-agent-leases", try(as("demo", own, "uid"), awaited))
	for what, a := range map[string]leaseAttempt{
		"add a finalizer":                           {"demo", own, `{"metadata":{"finalizers":["example.com/hold"]}}`},
		"change the volume":                         {"demo", own, note("volume-uid", "other")},
		"renew for another member":                  {"demo", other, `{"spec":{"holderIdentity":"2:Leader"}}`},
		"acknowledge a removal of another name":     {"demo", other, note("removal", `{"state":"done","mark":"m","by":"uid"}`)},
		"form the cluster again":                    {"demo", "demo-cluster", note("phase", "Forming")},
		"change the limit of learners":              {"demo", "demo-cluster", note("max-learners", "1")},
		"become the seed":                           {"recovering", "recovering-cluster", note("seed", own)},
		"remove a recovery order":                   {"recovering", "recovering-cluster", remove("recovery")},
		"claim a recovery order":                    {"recovering", "recovering-cluster", claim("uid")},
		"order a recovery":                          {"demo", "demo-cluster", note("phase", "Recovering")},
		"change a recovery order":                   {"recovering", "recovering-cluster", note("recovery", "{}")},
		"take the slot of another Pod":              {"demo", "demo-cluster", note("replacing", `{"member":"`+own+`","podUID":"other","memberID":"1"}`)},
		"take the Lease of the leader for another":  {"demo", "demo-leader", `{"spec":{"holderIdentity":"` + other + `"}}`},
		"report for an earlier Pod of its own name": {"demo", "demo-again", note("revision", "9")},
	} {
		pod := own
		if a.lease == "demo-again" {
			pod = a.lease
		}
		answered(t, "druid-agent-leases", what, true, try(as(a.cluster, pod, "uid"), a))
	}
	answered(t, "druid-agent-leases", "use a token of no Pod", true, try(as("demo", "", ""), leaseAttempt{"demo", "demo-cluster", note("member-list", "{}")}))
	for what, a := range map[string]leaseAttempt{
		"report a revision":       {"demo", own, note("revision", "9")},
		"renew":                   {"demo", own, `{"spec":{"holderIdentity":"1:Leader"}}`},
		"publish the member list": {"demo", "demo-cluster", note("member-list", "{}")},
		"lead":                    {"demo", "demo-leader", `{"spec":{"holderIdentity":"` + own + `"}}`},
	} {
		answered(t, "druid-agent-leases", what, false, try(as("demo", own, "uid"), a))
	}
	chosen := as("recovering", "recovering-aaaaa", "uid")
	answered(t, "druid-agent-leases", "claim a recovery order as the chosen member", false,
		try(chosen, leaseAttempt{"", "recovering-cluster", claim("uid")}))
	slot, leaving := &leases.Replacing{Member: "recovering-bbbbb", PodUID: "b", MemberID: "b"}, &leases.PendingRemoval{Member: "recovering-bbbbb", Mark: "m"}
	for what, taken := range map[string]leases.Record{
		"form the cluster again":                                {},
		"form the cluster again while a member replaces itself": {Replacing: slot},
		"form the cluster again while a member leaves":          {PendingRemoval: leaving},
	} {
		patch := in.reforms(t, taken)
		answered(t, "druid-agent-leases", what, false, try(chosen, leaseAttempt{"", "recovering-cluster", patch}))
	}
	for _, key := range []string{"replacing", "pending-removal"} {
		in.reforms(t, leases.Record{Replacing: slot, PendingRemoval: leaving})
		answered(t, "druid-agent-leases", "remove "+key+" of another", true, try(chosen, leaseAttempt{"", "recovering-cluster", remove(key)}))
	}
}

// reforms writes a record with an order that its agent claimed, and returns the patch with which the agent records the new raft group.
func (in *installed) reforms(t *testing.T, taken leases.Record) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := in.admin.Get(t.Context(), client.ObjectKey{Namespace: in.cluster.Namespace, Name: "recovering-cluster"}, lease); err != nil {
		t.Fatal(err)
	}
	record, err := leases.DecodeRecord(lease)
	if err != nil {
		t.Fatal(err)
	}
	record.Replacing, record.PendingRemoval, record.Attempt = taken.Replacing, taken.PendingRemoval, nil
	attempt := leases.RecoveryAttempt{Order: record.Order().Name(), Nonce: "a", PodUID: "uid", ClusterID: "abc"}
	if record, err = record.Claimed(attempt); err != nil {
		t.Fatal(err)
	}
	formed, err := record.Reformed(attempt, leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "recovering-aaaaa", Revision: 5},
		leases.Fork{Parent: "00000001-n", Revision: 5, At: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	cluster := plain()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: "recovering", Namespace: in.cluster.Namespace, UID: in.cluster.UID}
	encode := func(r leases.Record) *coordinationv1.Lease {
		made, err := RecordLease(cluster, r)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	was := encode(record)
	lease.Annotations, lease.Spec = was.Annotations, was.Spec
	if err := in.admin.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	patch, err := client.MergeFrom(was).Data(encode(formed))
	if err != nil {
		t.Fatal(err)
	}
	return string(patch)
}

// makeLeases makes the Leases of a cluster as druid does: those of three members, of which the Pod of one is known, of the leader's agent, and the record.
func (in *installed) makeLeases(t *testing.T, name string, record leases.Record) {
	t.Helper()
	cluster := plain()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: in.cluster.Namespace, UID: in.cluster.UID}
	if name == "recovering" {
		order := leases.Recovery{Epoch: 2, Nonce: "n", Mode: leases.RecoverSurvivor, Chosen: "recovering-aaaaa"}
		prepared, err := record.Prepare(order)
		if err != nil {
			t.Fatal(err)
		}
		order.Report = "report"
		if record, err = prepared.Execute(order); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := RecordLease(cluster, record)
	if err != nil {
		t.Fatal(err)
	}
	again := MemberLease(cluster, name+"-again")
	metav1.SetMetaDataAnnotation(&again.ObjectMeta, leases.Prefix+"pod-uid", "successor")
	for _, lease := range []*coordinationv1.Lease{
		recorded, LeaderLease(cluster), MemberLease(cluster, name+"-x7k2q"), MemberLease(cluster, name+"-other"), again,
	} {
		if err := in.admin.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
}
