package leases

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
)

func TestAVerificationIsReportedAsAWhole(t *testing.T) {
	at := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	broken := Verification{
		Verdict: VerdictBroken, At: at, Full: "full", Revision: 7, Lineage: "00000001-a", ProvenFull: "older", Broken: "delta", KnownBroken: []string{"full", "delta"}, Trouble: "why", Tried: at,
	}
	lease := apply(t, &coordinationv1.Lease{}, BackupPatch{Backup: fullSaved()}.encode())
	for _, v := range []Verification{broken, {Verdict: VerdictProven, At: at, Full: "full", Revision: 9, ProvenFull: "full"}, {Trouble: "no room", Tried: at}, {}} {
		lease = apply(t, lease, v.encode())
		got, err := DecodeVerification(lease)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if b, err := DecodeBackup(lease); err != nil || b != fullSaved() {
			t.Errorf("what is saved became %+v, %v", b, err)
		}
	}
	lease = apply(t, apply(t, lease, broken.encode()), BackupPatch{Backup: Backup{Revision: 9, Object: "next"}}.encode())
	if got, err := DecodeVerification(lease); err != nil || !cmp.Equal(got, broken) {
		t.Errorf("a backup that was made since leaves %+v, %v", got, err)
	}
	for key, value := range map[string]string{annotationVerdict: "Good", annotationVerified: "today", annotationVerifiedTo: "x"} {
		damaged := lease.DeepCopy()
		damaged.Annotations[key] = value
		if _, err := DecodeVerification(damaged); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s %q: %v", key, value, err)
		}
	}
}
