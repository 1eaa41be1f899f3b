package leases

import (
	"errors"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
)

func formedRecord() Record {
	return Record{
		ClusterID: 7, Phase: PhaseFormed, Epoch: 1, FormedEpoch: 1, Nonce: "aa", Lineage: LineageOf(1, "aa"), MaxLearners: MaxLearners35,
		Members: []string{"demo-a", "demo-b"}, Replacing: &Replacing{Member: "demo-a"}, MemberList: &MemberList{RaftTerm: 1},
	}
}

var survivorOrder = Recovery{Epoch: 2, Nonce: "bb", Mode: RecoverSurvivor, Chosen: "demo-b", Plan: "77"}

// The whole course of an order, from the lost quorum to the new raft group.
func TestAnOrderFormsARaftGroupOnce(t *testing.T) {
	must := func(r Record, err error) Record {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	prepared := must(formedRecord().Prepare(survivorOrder))
	if prepared.Order() == nil || prepared.Replacing == nil || prepared.ClusterID != 7 || prepared.Order().Name() != "2-bb" {
		t.Fatalf("prepared: %+v", prepared)
	}
	next := *prepared.Order()
	next.Report = "digest"
	other := next
	other.Nonce = "cc"
	executed := must(prepared.Execute(next))
	a := RecoveryAttempt{Order: "2-bb", Nonce: "cc", PodUID: "pod", ClusterID: "9"}
	claimed := must(executed.Claimed(a))
	formed := must(claimed.Reformed(a, Recovered{Epoch: 2, Mode: RecoverSurvivor, Member: "demo-b", Revision: 9}, Fork{Parent: "00000001-aa", Revision: 7}))
	if formed.Phase != PhaseFormed || formed.ClusterID != 9 || formed.FormedEpoch != 2 || formed.MaxLearners != MaxLearners35 ||
		formed.Lineage != LineageOf(2, "cc") || formed.MemberList != nil || formed.Order() != nil || formed.Recovered.Plan != "77" ||
		formed.Fork == nil || formed.Fork.Revision != 7 {
		t.Errorf("formed: %+v", formed)
	}
	refused := map[string]error{}
	_, refused["a second Formed"] = formed.Reformed(a, Recovered{Epoch: 2}, Fork{Parent: "00000001-aa", Revision: 7})
	_, refused["Formed of a superseded attempt"] = must(executed.Claimed(RecoveryAttempt{Order: "2-bb", Nonce: "dd", PodUID: "pod", ClusterID: "a"})).Reformed(a,
		Recovered{Epoch: 2}, Fork{Parent: "00000001-aa", Revision: 7})
	_, refused["the same epoch again"] = formed.Prepare(survivorOrder)
	_, refused["the same epoch while it stands"] = prepared.Prepare(survivorOrder)
	_, refused["Execute without a claim"] = prepared.Execute(survivorOrder)
	_, refused["Execute of another order"] = prepared.Execute(other)
	_, refused["Execute twice"] = executed.Execute(next)
	_, refused["an attempt of a prepared order"] = prepared.Claimed(a)
	_, refused["release of another order"] = prepared.Release("2-cc")
	_, refused["release after Formed"] = formed.Release("2-bb")
	_, refused["recovery of a group that never formed"] = Record{Phase: PhaseForming, Epoch: 1}.Prepare(survivorOrder)
	for name, err := range refused {
		if !errors.Is(err, ErrOrder) && !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAReleasedOrderNeverFires(t *testing.T) {
	prepared, err := formedRecord().Prepare(survivorOrder)
	if err != nil {
		t.Fatal(err)
	}
	released, err := prepared.Release("2-bb")
	if err != nil {
		t.Fatal(err)
	}
	if released.Phase != PhaseFormed || released.Released != 2 || released.ClusterID != 7 || released.FormedEpoch != 1 || released.Order() != nil {
		t.Errorf("released: %+v", released)
	}
	if _, err := released.Prepare(survivorOrder); !errors.Is(err, ErrOrder) {
		t.Errorf("an order of the released epoch is accepted: %v", err)
	}
	later := survivorOrder
	later.Epoch = 3
	if _, err := released.Prepare(later); err != nil {
		t.Error(err)
	}
}

// A patch removes what it does not name, so a field without its key in the list would never be written.
func TestAPatchWritesEachFieldOfARecord(t *testing.T) {
	var lease coordinationv1.Lease
	if err := fullRecord().Encode(&lease); err != nil {
		t.Fatal(err)
	}
	for key := range lease.Annotations {
		if !slices.Contains(recordAnnotations, key) {
			t.Errorf("annotation %s is not written", key)
		}
	}
}

// A record that was rolled back names an order of an epoch that formed since. It requests nothing.
func TestAnOrderOfAFormedEpochIsNotInEffect(t *testing.T) {
	r := formedRecord()
	r.Phase, r.Recovery, r.FormedEpoch = PhaseRecovering,
		&Recovery{Epoch: 2, Nonce: "bb", Stage: StageExecute, Report: "c", Mode: RecoverSurvivor, Chosen: "demo-b"}, 2
	if r.Order() != nil || r.Attempted() != nil {
		t.Error("the order is in effect")
	}
	if _, err := r.Claimed(RecoveryAttempt{Order: "2-bb", Nonce: "cc", PodUID: "p", ClusterID: "9"}); !errors.Is(err, ErrOrder) {
		t.Errorf("the order can be claimed: %v", err)
	}
}
