package druid

import (
	"errors"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// borrowsRecord returns the record and its Lease. The returned function writes the Lease as it was, after the caller wrote it.
func (s *stage) borrowsRecord() (lease *coordinationv1.Lease, record leases.Record, putBack func()) {
	s.Helper()
	lease = &coordinationv1.Lease{}
	if err := s.fetch(leases.RecordName("demo"), lease); err != nil {
		s.Fatal(err)
	}
	record, err := leases.DecodeRecord(lease)
	if err != nil {
		s.Fatal(err)
	}
	whole := lease.DeepCopy()
	return lease, record, func() {
		s.Helper()
		whole.ResourceVersion = lease.ResourceVersion
		if err := s.Update(s.Context(), whole); err != nil {
			s.Fatal(err)
		}
	}
}

// writesRecord writes the record to its Lease as the administrator.
func (s *stage) writesRecord(lease *coordinationv1.Lease, record leases.Record) {
	s.Helper()
	if err := errors.Join(record.Encode(lease), s.Update(s.Context(), lease)); err != nil {
		s.Fatal(err)
	}
}

// triesRecord returns how the API server answers the client that writes the record to a copy of its Lease. Nothing is stored.
func (s *stage) triesRecord(c client.Client, lease *coordinationv1.Lease, record leases.Record) error {
	s.Helper()
	changed := lease.DeepCopy()
	if err := record.Encode(changed); err != nil {
		s.Fatal(err)
	}
	return c.Update(s.Context(), changed, client.DryRunAll)
}

// recordsTheRecovery carries out a recovery order on the record, as the agents of the chosen member and of another one would.
func (s *stage) recordsTheRecovery(chosen, uid string, agent, another client.Client) {
	s.Helper()
	lease, record, _ := s.borrowsRecord()
	order := leases.Recovery{Epoch: record.FormedEpoch + 1, Nonce: "n", Mode: leases.RecoverSurvivor, Chosen: chosen}
	claimed := leases.RecoveryAttempt{Order: order.Name(), Nonce: "a", PodUID: uid, ClusterID: "abc"}
	write := func(c client.Client, change func() (leases.Record, error)) error {
		next, invalid := change()
		changed := lease.DeepCopy()
		if err := errors.Join(invalid, next.Encode(changed)); err != nil {
			return err
		}
		if err := c.Update(s.Context(), changed); err != nil {
			return err
		}
		record, lease = next, changed
		return nil
	}
	executed := order
	executed.Report = "report"
	formed := func() (leases.Record, error) {
		return record.Reformed(claimed, leases.Recovered{Epoch: order.Epoch, Mode: order.Mode, Member: chosen}, leases.Fork{Parent: "00000001-aa", Revision: 7})
	}
	err := errors.Join(
		write(s.Client, func() (leases.Record, error) { return record.Prepare(order) }),
		write(s.Client, func() (leases.Record, error) { return record.Execute(executed) }),
		write(agent, func() (leases.Record, error) { return record.Claimed(claimed) }),
	)
	if err != nil {
		s.Fatal(err)
	}
	s.claimsNoOtherOrder(lease, uid, agent, another)
	for name, forge := range map[string]func(*leases.Record){
		"another raft group": func(r *leases.Record) { r.ClusterID = 0xdead },
		"a later epoch":      func(r *leases.Record) { r.Epoch, r.FormedEpoch = 4294967295, 4294967295 },
		"two epochs":         func(r *leases.Record) { r.Epoch = 4294967295 },
		"another token":      func(r *leases.Record) { r.Nonce = "other" },
		"another lineage":    func(r *leases.Record) { r.Lineage = "00000002-other" },
		"another limit":      func(r *leases.Record) { r.MaxLearners++ },
		"voters from before": func(r *leases.Record) { r.Externals = []string{"abc"} },
	} {
		err := write(agent, func() (leases.Record, error) {
			forged, err := formed()
			forge(&forged)
			return forged, err
		})
		if !apierrors.IsForbidden(err) {
			s.Errorf("the agent of the chosen member records %s: %v", name, err)
		}
	}
	if err := write(another, formed); !apierrors.IsForbidden(err) {
		s.Errorf("the agent of a member that was not chosen records the new raft group: %v", err)
	}
	if err := write(agent, formed); err != nil {
		s.Errorf("the agent of the chosen member cannot record the new raft group: %v", err)
	}
}

// claimsNoOtherOrder tries to change the attempt at the recovery order of the record, as the chosen member and as another one.
func (s *stage) claimsNoOtherOrder(record *coordinationv1.Lease, uid string, agent, another client.Client) {
	s.Helper()
	claim := func(c client.Client, attempt string) error {
		patch := []byte(`{"metadata":{"annotations":{"etcd.druid.dev/recovery-attempt":` + attempt + `}}}`)
		return c.Patch(s.Context(), record.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
	}
	own := `{"order":"2-n","nonce":"b","podUID":"` + uid + `","clusterID":"abc"}`
	if err := claim(agent, strconv.Quote(own)); err != nil {
		s.Errorf("the agent of the chosen member cannot begin again: %v", err)
	}
	for name, attempt := range map[string]string{
		"another Pod":                  `{"order":"2-n","nonce":"a","podUID":"other","clusterID":"abc"}`,
		"a key that comes twice":       `{"order":"2-n","nonce":"a","podUID":"other","podUID":"` + uid + `","clusterID":"abc"}`,
		"its UID as the order's name":  `{"order":"` + uid + `","nonce":"a","podUID":"other","clusterID":"abc"}`,
		"its UID in the token as well": `{"order":"2-n","nonce":"` + uid + `","podUID":"other","clusterID":"abc"}`,
	} {
		if err := claim(agent, strconv.Quote(attempt)); !apierrors.IsForbidden(err) {
			s.Errorf("the agent of the chosen member writes an attempt with %s: %v", name, err)
		}
	}
	for name, attempt := range map[string]string{"replaces": strconv.Quote(own), "removes": "null"} {
		if err := claim(another, attempt); !apierrors.IsForbidden(err) {
			s.Errorf("the agent of a member that was not chosen %s the attempt: %v", name, err)
		}
	}
}

// fillsIn tries to complete a record that druid created again.
func (s *stage) fillsIn(try func(client.Client, attempt) error, agent client.Client) {
	s.Helper()
	lease, record, putBack := s.borrowsRecord()
	defer putBack()
	filled := record
	record.Epoch, record.FormedEpoch, record.Nonce, record.Lineage, record.MaxLearners = 0, 0, "", "", 0
	s.writesRecord(lease, record)
	if err := try(agent, attempt{lease: lease.Name, patch: `{"spec":{"holderIdentity":"dead"}}`}); !apierrors.IsForbidden(err) {
		s.Errorf("an agent names another raft group in a record that lacks fields: %v", err)
	}
	filled.Externals = []string{"abc"}
	if err := s.triesRecord(agent, lease, filled); err != nil {
		s.Errorf("an agent does not complete the record: %v", err)
	}
	// A record that druid created again has the nonce and the lineage of the Leases, and neither a limit of learners nor external members.
	again := filled
	again.MaxLearners, again.Externals = 0, nil
	s.writesRecord(lease, again)
	if err := s.triesRecord(agent, lease, filled); err != nil {
		s.Errorf("an agent does not complete a record that was created again: %v", err)
	}
}

// formsAsSeed tries to claim the bootstrap and to record the raft group, as the seed and as another member.
func (s *stage) formsAsSeed(own, other, uid string, agent client.Client) {
	s.Helper()
	lease, record, putBack := s.borrowsRecord()
	defer putBack()
	for seed, allowed := range map[string]bool{own: true, other: false} {
		forming := leases.Record{Phase: leases.PhaseForming, Seed: seed, Epoch: 1, Nonce: "druid", Members: record.Members}
		s.writesRecord(lease, forming)
		claimed := forming
		claimed.ClusterID, claimed.Epoch, claimed.Nonce, claimed.Lineage, claimed.MaxLearners, claimed.Executor = 0xabc, 2, "n", "00000002-n", 16, uid
		formed := claimed
		formed.Phase, formed.FormedEpoch = leases.PhaseFormed, 2
		for _, next := range []leases.Record{claimed, formed} {
			err := s.triesRecord(agent, lease, next)
			if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
				s.Errorf("member %s records phase %s while %s is the seed: allowed should be %t: %v", own, next.Phase, seed, allowed, err)
			}
		}
	}
}
