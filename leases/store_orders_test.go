package leases_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/etcd-druid/druid/leases"
)

func TestBackupsOnARealServer(t *testing.T) {
	s := newServer(t)
	if err := s.store.RenewBackup(t.Context(), leases.ComponentDeltaSnapshot, leases.BackupPatch{}); !errors.Is(err, leases.ErrAbsent) {
		t.Errorf("a Lease that does not exist: %v, want ErrAbsent", err)
	}
	s.make("demo-full-snapshot", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(3600)) })
	b, err := s.store.Backup(t.Context(), leases.ComponentFullSnapshot)
	if err != nil || b.EverSaved() {
		t.Errorf("before the first: %+v %v", b, err)
	}
	now := time.Now()
	saved := leases.Backup{Revision: 7, Lineage: "00000001-a", Object: "full", Size: 1, SHA256: "ab", Taken: now.UTC().Truncate(time.Second)}
	for range 2 { // it compares nothing
		err := s.store.RenewBackup(t.Context(), leases.ComponentFullSnapshot, leases.BackupPatch{Backup: saved, RenewTime: &now, Duration: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err = s.store.Backup(t.Context(), leases.ComponentFullSnapshot); err != nil || b != saved {
		t.Errorf("after it: %+v %v, want %+v", b, err, saved)
	}
	if l := s.get("demo-full-snapshot"); *l.Spec.HolderIdentity != "7" || *l.Spec.LeaseDurationSeconds != 3600 {
		t.Errorf("the Lease says %+v", l.Spec)
	}
	if _, err := s.store.Backup(t.Context(), leases.ComponentDeltaSnapshot); !errors.Is(err, leases.ErrAbsent) {
		t.Errorf("a Lease that is not there: %v, want ErrAbsent", err)
	}
}

func TestOrdersOnARealServer(t *testing.T) {
	s := newServer(t)
	s.make("demo-full-snapshot", func(*coordinationv1.Lease) {})
	order, err := s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
	if err != nil || order.Open() || order.UID != "" {
		t.Errorf("without an order: %+v %v", order, err)
	}
	s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{leases.AnnotationSnapshotOrder: "one"}
	})
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || !order.Open() || order.UID != "one" {
		t.Errorf("with an order: %+v %v", order, err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	answer := leases.SnapshotAnswer{
		UID: "one", Phase: leases.SnapshotSucceeded, Started: now, Finished: now, Object: "full", Size: 1, SHA256: "ab", Revision: 7,
		URI: "s3://b/full", StorageVersion: "3.6.0",
	}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, order.Version, answer); err != nil {
		t.Fatal(err)
	}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, order.Version, answer); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("over an old version: %v, want ErrConflict", err)
	}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, "", answer); err == nil {
		t.Error("answered without a version, want an error")
	}
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || order.Open() || order.Answer != answer {
		t.Errorf("answered: %+v %v, want %+v", order, err, answer)
	}
	s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) {
		l.Annotations[leases.AnnotationSnapshotOrderKind] = leases.OrderKind(leases.SnapshotFinal, "zero")
	})
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || order.Kind != "" || order.Answer != answer {
		t.Errorf("with the kind of another order: %+v %v", order, err)
	}
	s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) {
		l.Annotations[leases.AnnotationSnapshotOrderKind] = leases.OrderKind(leases.SnapshotFinal, "one")
	})
	// The answer of an agent that does not know kinds does not count: an agent that knows them performs the request.
	order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
	if err != nil || !order.Open() || order.Kind != leases.SnapshotFinal || order.Answer != (leases.SnapshotAnswer{}) {
		t.Errorf("of another kind: %+v %v", order, err)
	}
	answer.Kind = leases.SnapshotFinal
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, order.Version, answer); err != nil {
		t.Fatal(err)
	}
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || order.Open() || order.Answer != answer {
		t.Errorf("of its kind: %+v %v, want %+v", order, err, answer)
	}
	for name, annotation := range map[string]string{
		"another's": `{"uid":"two","phase":"Succeeded"}`, "of no phase": `{"uid":"one","phase":"Done"}`, "no answer": "yes", "nothing": "",
	} {
		s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) { l.Annotations[leases.AnnotationSnapshotAnswer] = annotation })
		order, err := s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
		if err != nil || !order.Open() || order.Answer != (leases.SnapshotAnswer{}) {
			t.Errorf("%s answers: %+v %v", name, order, err)
		}
	}
}

func TestOrdersAreWrittenAndRemovedWhole(t *testing.T) {
	s := newServer(t)
	s.make("demo-full-snapshot", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"other": "stays"} })
	read := func() leases.SnapshotOrder {
		t.Helper()
		order, err := s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
		if err != nil {
			t.Fatal(err)
		}
		return order
	}
	want := leases.SnapshotTarget{URI: "s3://b/full"}
	before := read()
	if err := s.store.OrderSnapshot(t.Context(), leases.ComponentFullSnapshot, before.Version, "one", leases.SnapshotDelete, &want); err != nil {
		t.Fatal(err)
	}
	order := read()
	if target, err := order.Target(); order.UID != "one" || order.Kind != leases.SnapshotDelete || target != want || err != nil {
		t.Errorf("ordered %+v of %+v, %v", order, target, err)
	}
	for name, write := range map[string]func(leases.Version) error{
		"an order": func(at leases.Version) error {
			return s.store.OrderSnapshot(t.Context(), leases.ComponentFullSnapshot, at, "two", "", nil)
		},
		"a removal": func(at leases.Version) error {
			return s.store.ClearSnapshotOrder(t.Context(), leases.ComponentFullSnapshot, at)
		},
	} {
		if err := write(before.Version); !errors.Is(err, leases.ErrConflict) {
			t.Errorf("%s over an old version: %v, want ErrConflict", name, err)
		}
		if err := write(""); err == nil {
			t.Errorf("%s without a version, want an error", name)
		}
	}
	answer := leases.SnapshotAnswer{UID: "one", Kind: leases.SnapshotDelete, Phase: leases.SnapshotSucceeded}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, read().Version, answer); err != nil {
		t.Fatal(err)
	}
	// Nothing of an order or its answer is left to the next one.
	if err := s.store.OrderSnapshot(t.Context(), leases.ComponentFullSnapshot, read().Version, "two", "", nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"other": "stays", leases.AnnotationSnapshotOrder: "two"}, s.get("demo-full-snapshot").Annotations); diff != "" {
		t.Errorf("the next order (-want +got)\n%s", diff)
	}
	if err := s.store.ClearSnapshotOrder(t.Context(), leases.ComponentFullSnapshot, read().Version); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"other": "stays"}, s.get("demo-full-snapshot").Annotations); diff != "" {
		t.Errorf("removed (-want +got)\n%s", diff)
	}
}

func TestATargetIsOfItsOrderAlone(t *testing.T) {
	want := leases.SnapshotTarget{URI: "s3://b/demo/full/1.zst"}
	of, err := leases.OrderTarget(want, "one")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		uid, target string
		readable    bool
	}{
		"its own":          {"one", of, true},
		"another order's":  {"two", of, false},
		"none":             {"one", "", false},
		"half of it":       {"one", of[:len(of)-1], false},
		"of a later druid": {"one", `one/{"uri":"a","unless":"b"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var lease coordinationv1.Lease
			lease.Annotations = map[string]string{leases.AnnotationSnapshotOrder: test.uid, leases.AnnotationSnapshotOrderTarget: test.target}
			got, err := leases.DecodeSnapshotOrder(&lease).Target()
			switch {
			case !test.readable && !errors.Is(err, leases.ErrUnreadable):
				t.Errorf("got %+v, %v", got, err)
			case test.readable && (err != nil || cmp.Diff(want, got) != ""):
				t.Errorf("%v (-want +got)\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}
