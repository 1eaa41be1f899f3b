package druid

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// asAgent acts with a token of the Pod, as its agent does, or one that is bound to no Pod.
func (s *stage) asAgent(pod *corev1.Pod) client.Client {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	got, err := kubernetes.NewForConfigOrDie(s.config).CoreV1().ServiceAccounts(s.namespace).CreateToken(
		s.Context(), manifests.AgentName("demo"), request, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken, config.WrapTransport = got.Status.Token, s.config.WrapTransport
	return s.clientOf(config)
}

// attempt is a merge patch of a Lease with the token of a member's Pod.
type attempt struct {
	lease, patch string
	allowed      bool
}

func (s *stage) patchLease(c client.Client, a attempt, options ...client.PatchOption) error {
	lease := &coordinationv1.Lease{}
	lease.Name, lease.Namespace = a.lease, s.namespace
	return c.Patch(s.Context(), lease, client.RawPatch(types.MergePatchType, []byte(a.patch)), options...)
}

// A token of a member's Pod reports for this member alone, with what is its to report.
func TestATokenOfAMemberForgesNoOther(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	stop := s.startDruid()
	names := s.whole(3)
	own, other := names[0], names[1]
	pods := map[string]*corev1.Pod{}
	for _, name := range names {
		pods[name] = &corev1.Pod{}
		if err := s.fetch(name, pods[name]); err != nil {
			t.Fatal(err)
		}
	}
	agent, uid := s.asAgent(pods[own]), string(pods[own].UID)
	try := func(c client.Client, a attempt) error { return s.patchLease(c, a, client.DryRunAll) }
	annotate := func(lease, key, value string, allowed bool) attempt {
		return attempt{lease, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, leases.Prefix+key, value), allowed}
	}
	s.eventually("the policy is in force", func() error {
		if err := try(agent, annotate(other, "revision", "9", false)); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a token of %s writes the Lease of %s: %w", own, other, err)
		}
		return nil
	})
	hold := func(lease, holder string, allowed bool) attempt {
		return attempt{lease, fmt.Sprintf(`{"spec":{"holderIdentity":%q,"renewTime":"2026-11-24T12:00:00.000000Z"}}`, holder), allowed}
	}
	record, leader := leases.RecordName("demo"), leases.LeaderName("demo")
	if err := s.patchLease(s.Client, annotate(record, "max-learners", "16", true)); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]attempt{
		"renews its Lease":                        hold(own, "1:Leader", true),
		"reports its revision":                    annotate(own, "revision", "9", true),
		"reports its certificates":                annotate(own, "tls", "{}", true),
		"notes a defragmentation of another":      annotate(other, "defragmentation", "{}", true),
		"publishes the member list":               annotate(record, "member-list", "{}", true),
		"takes the slot for itself":               annotate(record, "replacing", `{"member":"`+own+`","podUID":"`+uid+`","memberID":"1"}`, true),
		"reports what its disk holds":             annotate(own, "disk", "{}", true),
		"reports how fast its disk is":            annotate(own, "fsync", "OK p99=4ms", true),
		"reports how fast the disk of another is": annotate(other, "fsync", "OK p99=4ms", false),
		"campaigns":                                     hold(leader, own, true),
		"renews the Lease of another":                   hold(other, "2:Leader", false),
		"reports the revision of another":               annotate(other, "revision", "9", false),
		"names its Pod in the Lease of another":         annotate(other, "pod-uid", uid, false),
		"names another Pod in its Lease":                annotate(own, "pod-uid", "other", false),
		"names another volume in its Lease":             annotate(own, "volume-uid", "other", false),
		"forges a repair of druid":                      annotate(own, "repair", "{}", false),
		"takes the slot for another":                    annotate(record, "replacing", `{"member":"`+other+`","podUID":"other","memberID":"1"}`, false),
		"adds a member":                                 annotate(record, "members", own, false),
		"orders a removal":                              annotate(record, "pending-removal", "{}", false),
		"orders that all members leave":                 annotate(record, "leaving", "true", false),
		"has the cluster formed again":                  annotate(record, "phase", "Forming", false),
		"reports what the disk of another holds":        annotate(other, "disk", "{}", false),
		"removes the phase":                             {record, `{"metadata":{"annotations":{"etcd.druid.dev/phase":null}}}`, false},
		"requests a removal":                            annotate(other, "removal", `{"state":"requested","mark":"m"}`, false),
		"acknowledges a removal that was not requested": annotate(other, "removal", `{"state":"done","mark":"m","by":"`+uid+`"}`, false),
		"campaigns for another":                         hold(leader, other, false),
		"takes the label of a Lease away":               {own, `{"metadata":{"labels":{"etcd.druid.dev/cluster":null}}}`, false},
		"takes the owner of a Lease away":               {own, `{"metadata":{"ownerReferences":null}}`, false},
		"adds a finalizer":                              {own, `{"metadata":{"finalizers":["example.com/hold"]}}`, false},
		"writes an annotation of its own":               {own, `{"metadata":{"annotations":{"example.com/note":"x"}}}`, false},
		"claims a recovery order that does not exist": annotate(record, "recovery-attempt",
			`{"order":"2-n","nonce":"a","podUID":"`+uid+`","clusterID":"abc"}`, false),
		"plans a restore":                annotate(record, "restore-plan", "{}", true),
		"requests the plan of a restore": annotate(record, "restore-request", "{}", false),
		"orders a recovery":              annotate(record, "phase", "Recovering", false),
		"writes a recovery order":        annotate(record, "recovery", "{}", false),
		"releases a recovery order":      annotate(record, "released", "2", false),
		"takes the slot for another by a key that comes twice": annotate(record, "replacing",
			`{"member":"`+own+`","podUID":"`+uid+`","memberID":"1","podUID":"other"}`, false),
		"takes the slot for another by a key in another case": annotate(record, "replacing",
			`{"member":"`+own+`","podUID":"`+uid+`","memberID":"1","PodUID":"other"}`, false),
		"takes the slot with what cannot be read": annotate(record, "replacing", `{"member":"`+own+`","podUID":"`+uid+`","memberID":"1"`, false),
		"writes a phase that cannot be read":      annotate(record, "phase", "Other", false),
		"writes a fork that cannot be read":       annotate(record, "fork", `{"parent":"00000001-aa","revision":7,"at":"then"}`, false),
		"becomes the seed":                        annotate(record, "seed", "other", false),
		"names another raft group":                {record, `{"spec":{"holderIdentity":"dead"}}`, false},
		"names no raft group":                     {record, `{"spec":{"holderIdentity":null}}`, false},
		"raises the epoch":                        annotate(record, "epoch", "4294967295", false),
		"raises the formed epoch":                 annotate(record, "formed-epoch", "4294967295", false),
		"has the cluster formed by another epoch": {record, `{"metadata":{"annotations":{"etcd.druid.dev/epoch":"4294967295",` +
			`"etcd.druid.dev/formed-epoch":"4294967295"}},"spec":{"holderIdentity":"dead"}}`, false},
		"changes the token of the raft group":    annotate(record, "nonce", "other", false),
		"changes the lineage of the backups":     annotate(record, "lineage", "00000001-other", false),
		"changes the limit of learners":          annotate(record, "max-learners", "1", false),
		"removes the limit of learners":          {record, `{"metadata":{"annotations":{"etcd.druid.dev/max-learners":null}}}`, false},
		"names another Pod that formed it":       annotate(record, "executor", "other", false),
		"claims that voters were there before":   annotate(record, "external-members", "abc", false),
		"claims that a recovery was carried out": annotate(record, "recovered", "{}", false),
		"adds from where the data came":          annotate(record, "fork", `{"parent":"00000001-aa","revision":7,"at":"2026-11-24T12:00:00Z"}`, true),
		"reports the state of authentication":    annotate(record, "auth", `{"enabled":false}`, true),
	} {
		t.Run(name, func(t *testing.T) {
			err := try(agent, a)
			if a.allowed && err != nil || !a.allowed && !apierrors.IsForbidden(err) {
				t.Errorf("allowed should be %t: %v", a.allowed, err)
			}
		})
	}
	t.Run("without a Pod it does nothing", func(t *testing.T) {
		if err := try(s.asAgent(nil), hold(own, "1:Leader", true)); !apierrors.IsForbidden(err) {
			t.Errorf("a token that is bound to no Pod renews a Lease: %v", err)
		}
		if err := try(s.asAgent(nil), annotate(other, "defragmentation", "{}", false)); !apierrors.IsForbidden(err) {
			t.Errorf("a token that is bound to no Pod writes to a Lease: %v", err)
		}
	})
	stop() // it withdraws removal requests that its slot does not name
	t.Run("a removal is answered in its own name", func(t *testing.T) { s.answersInItsOwnName(other, uid, agent, try) })
	t.Run("only what the record lacks is filled in", func(t *testing.T) { s.fillsIn(try, agent) })
	t.Run("only the seed forms the cluster", func(t *testing.T) { s.formsAsSeed(own, other, uid, agent) })
	t.Run("the chosen member records the new raft group", func(t *testing.T) { s.recordsTheRecovery(own, uid, agent, s.asAgent(pods[other])) })
}

// answersInItsOwnName tries the answers to a removal request on the Lease of another member.
func (s *stage) answersInItsOwnName(other, uid string, agent client.Client, try func(client.Client, attempt) error) {
	s.Helper()
	says := func(value string) attempt {
		return attempt{lease: other, patch: fmt.Sprintf(`{"metadata":{"annotations":{"etcd.druid.dev/removal":%q}}}`, value)}
	}
	answer := func(state, by, mark string) attempt {
		value := fmt.Sprintf(`{"state":%q,"mark":%q,"by":%q,"memberID":"2","clusterID":"c"}`, state, mark, by)
		switch state {
		case "done":
			value = strings.TrimSuffix(value, "}") + `,"raftTerm":2,"raftIndex":9}`
		case "requested":
			value = fmt.Sprintf(`{"state":"requested","mark":%q}`, mark)
		}
		return says(value)
	}
	forged := func(more string) attempt {
		return says(fmt.Sprintf(`{"state":"removing","mark":"m","by":%q,"memberID":"2","clusterID":"c"%s}`, uid, more))
	}
	for _, c := range []struct {
		was     attempt
		is      attempt
		allowed bool
	}{
		{answer("requested", "", "m"), answer("removing", uid, "m"), true},
		{answer("requested", "", "m"), answer("removing", "other", "m"), false},
		{answer("requested", "", "m"), answer("removing", uid, "another"), false},
		{answer("requested", "", "m"), answer("done", uid, "m"), false},
		{answer("removing", "other", "m"), answer("removing", uid, "m"), true},
		{answer("removing", uid, "m"), answer("requested", "", "m"), true},
		{answer("removing", uid, "m"), answer("done", uid, "m"), true},
		{answer("removing", "other", "m"), answer("done", uid, "m"), true},
		{answer("removing", uid, "m"), answer("done", "other", "m"), false},
		{answer("done", "other", "m"), answer("removing", uid, "m"), false},
		{answer("done", "other", "m"), answer("requested", "", "m"), false},
		{answer("removing", "other", "m"), forged(""), true},
		{answer("removing", "other", "m"), forged(`,"by":"leader","state":"done","raftTerm":2,"raftIndex":9`), false},
		{answer("removing", "other", "m"), forged(`,"BY":"leader","State":"done","raftTerm":2,"raftIndex":9`), false},
		{answer("requested", "", "m"), forged(`,"State":"done","raftTerm":2,"raftIndex":9`), false},
		{answer("requested", "", "m"), forged(`,"raftTerm":2,"raftIndex":9`), false},
		{answer("removing", "other", "m"), says(`{"state":"requested","mark":"m","state":"done"}`), false},
		{answer("removing", "other", "m"), says(fmt.Sprintf(`{"state":"removing","mark":"x","note":"\"mark\":\"m\"","by":%q,"clusterID":"c"}`, uid)), false},
	} {
		if err := s.patchLease(s.Client, c.was); err != nil {
			s.Fatal(err)
		}
		err := try(agent, c.is)
		if c.allowed && err != nil || !c.allowed && !apierrors.IsForbidden(err) {
			s.Errorf("%s after %s: allowed should be %t: %v", c.is.patch, c.was.patch, c.allowed, err)
		}
	}
}

// Another Pod of the member is refused until druid has named it in the Lease.
func TestAnEarlierPodOfAMemberIsRefused(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	stop := s.startDruid()
	name := s.whole(1)[0]
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		t.Fatal(err)
	}
	agent := s.asAgent(&pod)
	stop()
	lease := &coordinationv1.Lease{}
	lease.Name, lease.Namespace = name, s.namespace
	if err := s.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"etcd.druid.dev/pod-uid":"successor"}}}`))); err != nil {
		t.Fatal(err)
	}
	s.eventually("the Pod is refused", func() error {
		err := agent.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"etcd.druid.dev/revision":"9"}}}`)),
			client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "another Pod of this member") {
			return fmt.Errorf("the earlier Pod writes the Lease: %w", err)
		}
		return nil
	})
}

// TestAgentsUseOnlyOwnLeases: agents may use the Leases of their cluster alone.
func TestAgentsUseOnlyOwnLeases(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("other", 1)
	other := s.members("other", 1)[0]
	s.createCluster("demo", 1)
	name := s.members("demo", 1)[0]
	var pod corev1.Pod
	s.eventually("have a Pod", func() error { return s.fetch(name, &pod) })

	config := s.configAs(fmt.Sprintf("system:serviceaccount:%s:%s", s.namespace, manifests.AgentName("demo")), serviceAccounts...)
	// Other tests install the policy that demands a token of the Pod.
	config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/pod-name": {name}, "authentication.kubernetes.io/pod-uid": {string(pod.UID)}}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	agent := clients.CoordinationV1().Leases(s.namespace)
	store := leases.NewStore(agent, "demo")
	s.eventually("let RBAC take effect", func() error {
		_, err := store.Member(t.Context(), name)
		return err
	})
	now := time.Now()
	if _, err := store.PatchMember(t.Context(), name, leases.MemberPatch{RenewTime: &now}); err != nil {
		t.Errorf("renew: %v", err)
	}
	record, version, err := store.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Errorf("write the record: %v", err)
	}
	leader, err := agent.Get(t.Context(), leases.LeaderName("demo"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Update(t.Context(), leader, metav1.UpdateOptions{}); err != nil {
		t.Errorf("campaign: %v", err)
	}
	refused := map[string]func(context.Context) error{
		"get another cluster's Lease": func(ctx context.Context) error {
			_, err := agent.Get(ctx, other, metav1.GetOptions{})
			return err
		},
		"list Leases": func(ctx context.Context) error {
			_, err := agent.List(ctx, metav1.ListOptions{})
			return err
		},
		"delete a Lease": func(ctx context.Context) error { return agent.Delete(ctx, name, metav1.DeleteOptions{}) },
		"create a Lease": func(ctx context.Context) error {
			_, err := agent.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "demo-x"}}, metav1.CreateOptions{})
			return err
		},
		"get a Pod": func(ctx context.Context) error {
			_, err := clients.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
			return err
		},
		"block the deletion of its Pod": func(ctx context.Context) error {
			hold := []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`)
			_, err := clients.CoreV1().Pods(s.namespace).Patch(ctx, name, types.MergePatchType, hold, metav1.PatchOptions{})
			return err
		},
	}
	for what, try := range refused {
		if err := try(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want Forbidden", what, err)
		}
	}
}
