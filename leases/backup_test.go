package leases

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fullSaved has every field set.
func fullSaved() Backup {
	return Backup{
		Revision: 1234, Lineage: "00000002-k3v9", Object: "ns/demo/00000002-k3v9/full/00000000000004d2-1.snap.zst", Size: 4096,
		SHA256: strings.Repeat("a", 64), Taken: time.Date(2026, 11, 21, 18, 54, 0, 0, time.UTC), Lag: 1500 * time.Millisecond,
		Since: time.Date(2026, 11, 14, 3, 0, 0, 0, time.UTC),
		Error: "bucket \"backups\" refuses us", Cause: BackupUnauthorized,
		Auth: BackupAuth{Object: "ns/demo/00000002-k3v9/full/00000000000004d2-1.snap.zst", Revision: 12, Enabled: true},
	}
}

func TestBackupPatch(t *testing.T) {
	known := func(change func(*Backup)) Backup { b := fullSaved(); change(&b); return b }
	for name, test := range map[string]struct {
		patch Backup
		want  Backup
	}{
		"a success wipes the failure before it, and no more": {Backup{}, known(func(b *Backup) { b.Lag, b.Error, b.Cause = 0, "", "" })},
		"a failure leaves what was saved": {
			Backup{Error: "denied", Lag: time.Minute}, known(func(b *Backup) { b.Lag, b.Error, b.Cause = time.Minute, "denied", "" }),
		},
		"an object is reported as a whole": {
			Backup{Revision: 2000, Object: "next"},
			known(func(b *Backup) { *b = Backup{Revision: 2000, Lineage: b.Lineage, Object: "next", Auth: b.Auth} }),
		},
		"all of it": {fullSaved(), fullSaved()},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"someone.else/key": "stays"}}}
			lease = apply(t, lease, BackupPatch{Backup: fullSaved()}.encode())
			lease = apply(t, lease, BackupPatch{Backup: test.patch}.encode())
			got, err := DecodeBackup(lease)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
			if lease.Annotations["someone.else/key"] != "stays" || lease.Spec.RenewTime != nil || lease.Spec.LeaseDurationSeconds != nil {
				t.Errorf("something was written without a report: %+v", lease)
			}
		})
	}
}

// TestBackupRenewalTimes: backup renewal reports when and for how long.
func TestBackupRenewalTimes(t *testing.T) {
	now := time.Unix(1700000000, 0)
	patch := BackupPatch{Backup: Backup{Error: strings.Repeat("é", 1000)}, RenewTime: &now, Duration: 90*time.Second + 1}.encode()
	lease := apply(t, &coordinationv1.Lease{}, patch)
	if !lease.Spec.RenewTime.Time.Equal(now) || *lease.Spec.LeaseDurationSeconds != 90 {
		t.Errorf("got %+v", lease.Spec)
	}
	if b, err := DecodeBackup(lease); err != nil || len(b.Error) > maxReason || b.EverSaved() {
		t.Errorf("%+v %v: want a short error, and nothing saved", b, err)
	}
}

func TestUnreadableBackupsAreUnknown(t *testing.T) {
	for name, change := range map[string]func(*coordinationv1.Lease){
		"a holder that is no revision": func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("demo-abcde") },
		"a revision below zero":        func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("-1") },
		"a size that is none":          func(l *coordinationv1.Lease) { l.Annotations[annotationSize] = "big" },
		"a time that is none":          func(l *coordinationv1.Lease) { l.Annotations[annotationTaken] = "today" },
		"a beginning that is none":     func(l *coordinationv1.Lease) { l.Annotations[annotationSince] = "last week" },
		"a lag that is none":           func(l *coordinationv1.Lease) { l.Annotations[annotationLag] = "long" },
	} {
		t.Run(name, func(t *testing.T) {
			lease := apply(t, &coordinationv1.Lease{}, BackupPatch{Backup: fullSaved(), RenewTime: new(time.Now())}.encode())
			lease.Labels = map[string]string{LabelComponent: string(ComponentFullSnapshot)}
			w := NewWatcher()
			w.Observe(lease, time.Now())
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Second)}
			if got := w.Observe(lease, time.Now()); got != Live {
				t.Errorf("before: %s, want Live", got)
			}
			change(lease)
			if _, err := DecodeBackup(lease); !errors.Is(err, ErrUnreadable) {
				t.Errorf("got %v, want ErrUnreadable", err)
			}
			if got := w.Observe(lease, time.Now()); got != Unknown {
				t.Errorf("after: %s, want Unknown", got)
			}
		})
	}
}

// What an agent cannot read of the users in a full backup is unknown. It takes another full backup then.
func TestUnreadableBackupAuthIsUnknown(t *testing.T) {
	for _, value := range []string{"", "on", "7 on", "x on full", "-1 off full", "7  full"} {
		lease := apply(t, &coordinationv1.Lease{}, BackupPatch{Backup: fullSaved()}.encode())
		lease.Annotations[annotationSavedAuth] = value
		if b, err := DecodeBackup(lease); err != nil || b.Auth != (BackupAuth{}) {
			t.Errorf("%q is read as %+v, %v", value, b.Auth, err)
		}
	}
}

// WithTimeout raises the timeout of the Store for tests on a busy machine.
func (s *Store) WithTimeout(d time.Duration) *Store {
	s.timeout = d
	return s
}

// WithTimes sets the duration of an Election for tests, and its attempts to a fifteenth of that.
func (e *Election) WithTimes(duration time.Duration) *Election {
	e.duration, e.renewDeadline, e.retryPeriod, e.hurry = duration, duration*2/3, duration/15, duration/15
	return e
}

func TestAVerificationIsReportedInOneWrite(t *testing.T) {
	at := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	broken := Verification{
		Verdict: VerdictBroken, At: at, Full: "full", Revision: 7, Lineage: "00000001-a", VerifiedFull: "older", Broken: "delta",
		KnownBroken: []string{"full", "delta"}, Trouble: "why", Tried: at,
	}
	lease := apply(t, &coordinationv1.Lease{}, BackupPatch{Backup: fullSaved()}.encode())
	for _, v := range []Verification{broken, {Verdict: VerdictVerified, At: at, Full: "full", Revision: 9, VerifiedFull: "full"},
		{Trouble: "no room", Tried: at}, {}} {
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

func TestAVerdictOfAnEarlierAgentIsRead(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationVerdict: "Proven", annotationFullVerified: "full"}}}
	if v, err := DecodeVerification(lease); err != nil || v.Verdict != VerdictVerified || v.VerifiedFull != "full" {
		t.Errorf("got %+v, %v", v, err)
	}
}
