package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// saved is a backup with every field set.
func saved() *Backup {
	return &Backup{
		Store: json.RawMessage(`{"directory":{"path":"/backup/store"}}`), Prefix: "default/demo",
		Full:        Full{Schedule: "0 */6 * * *", TimeZone: "Europe/Berlin", MaxAge: Duration(12 * time.Hour)},
		Delta:       Delta{Period: Duration(10 * time.Second), MaxBytes: 8 << 20},
		Retention:   Retention{KeepAll: Duration(48 * time.Hour), Hourly: 24, Daily: 7, Weekly: 4, Monthly: 12},
		Compression: Compression{Level: "Better"},
	}
}

func TestBackupNamesFieldAndRange(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Backup)
		want   string // empty: valid
	}{
		"a whole one is valid":        {func(*Backup) {}, ""},
		"a number of fulls alone":     {func(b *Backup) { b.Retention = Retention{Count: 3} }, ""},
		"no age but the schedule's":   {func(b *Backup) { b.Full.MaxAge = 0 }, ""},
		"the compression's default":   {func(b *Backup) { b.Compression = Compression{} }, ""},
		"a compression by a number":   {func(b *Backup) { b.Compression.Level = "19" }, `backup.compression.level is "19", want one of [Fastest`},
		"no prefix":                   {func(b *Backup) { b.Prefix = "" }, "backup.prefix is empty"},
		"an age of no time":           {func(b *Backup) { b.Full.MaxAge = Duration(time.Second) }, "backup.full.maxAge is 1s"},
		"a period of no time":         {func(b *Backup) { b.Delta.Period = Duration(time.Millisecond) }, "backup.delta.period is 1ms, want 1s to 1h0m0s"},
		"a delta per write":           {func(b *Backup) { b.Delta.MaxBytes = 1 }, "backup.delta.maxBytes is 1, want 65536"},
		"a delta that fills memory":   {func(b *Backup) { b.Delta.MaxBytes = 1 << 40 }, "backup.delta.maxBytes is"},
		"nothing to keep":             {func(b *Backup) { b.Retention = Retention{} }, "backup.retention is empty"},
		"two ways to keep":            {func(b *Backup) { b.Retention.Count = 1 }, "count and other fields"},
		"less than nothing to keep":   {func(b *Backup) { b.Retention.Daily = -1 }, "a negative number"},
		"a zone that is nowhere":      {func(b *Backup) { b.Full.TimeZone = "Europe/Atlantis" }, `time zone "Europe/Atlantis" is unknown`},
		"a zone per node":             {func(b *Backup) { b.Full.TimeZone = "Local" }, "can differ between nodes"},
		"a zone in the schedule":      {func(b *Backup) { b.Full.Schedule = "TZ=x" }, "in its own field"},
		"a schedule of four fields":   {func(b *Backup) { b.Full.Schedule = "0 0 * *" }, `schedule "0 0 * *"`},
		"a schedule that never comes": {func(b *Backup) { b.Full.Schedule = "0 0 30 2 *" }, "no date ever matches it"},
	} {
		t.Run(name, func(t *testing.T) {
			b := saved()
			test.change(b)
			err := b.Validate()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestFullIsDueByItsScheduleOrItsAge(t *testing.T) {
	at := func(s string) time.Time {
		parsed, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for name, test := range map[string]struct {
		schedule, zone string
		maxAge         time.Duration
		taken, want    string
	}{
		"the next of the schedule":               {"0 0 * * *", "", 0, "2026-11-21T18:54:00Z", "2026-11-22T00:00:00Z"},
		"in its own zone":                        {"0 0 * * *", "Asia/Tokyo", 0, "2026-11-21T18:54:00Z", "2026-11-22T15:00:00Z"},
		"the age comes before the schedule":      {"@weekly", "", time.Hour, "2026-11-21T18:54:00Z", "2026-11-21T19:54:00Z"},
		"the schedule comes before the age":      {"@hourly", "", 24 * time.Hour, "2026-11-21T18:54:00Z", "2026-11-21T19:00:00Z"},
		"a day of 25 hours":                      {"0 12 * * *", "Europe/Berlin", 0, "2026-10-24T10:00:00Z", "2026-10-25T11:00:00Z"},
		"a time that the clock leaps over":       {"30 2 * * *", "Europe/Berlin", 0, "2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"},
		"a weekend without any, and a short age": {"0 9 * * 1-5", "", 36 * time.Hour, "2026-11-20T09:00:00Z", "2026-11-21T21:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			b := saved()
			b.Full = Full{Schedule: test.schedule, TimeZone: test.zone, MaxAge: Duration(test.maxAge)}
			due, err := b.FullDue(at(test.taken))
			if err != nil || !due.Equal(at(test.want)) {
				t.Errorf("due at %v (%v), want %s", due.UTC(), err, test.want)
			}
			// The result is the same for an agent that renews the Lease later.
			d, err := b.FullLeaseDuration(at(test.taken), at(test.taken).Add(time.Minute))
			if want := at(test.want).Sub(at(test.taken)) - time.Minute + FullGrace; err != nil || d != want {
				t.Errorf("the Lease lasts %v (%v), want %v", d, err, want)
			}
		})
	}
}

func TestDeltaLeaseLastsTwoPeriods(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{
		time.Second: 45 * time.Second, 10 * time.Second: 45 * time.Second, 30 * time.Second: time.Minute, time.Hour: 2 * time.Hour,
	} {
		b := saved()
		b.Delta.Period = Duration(period)
		if got := b.DeltaLeaseDuration(); got != want {
			t.Errorf("a period of %v: %v, want %v", period, got, want)
		}
	}
}

func TestRestoreOrderIsReadAsItWasWritten(t *testing.T) {
	moment := time.Date(2026, 11, 21, 18, 54, 0, 0, time.UTC)
	for name, want := range map[string]Restore{
		"the newest state of its own store": {Prefix: "default/demo"},
		"a revision of another store":       {Store: json.RawMessage(`{"s3":{"bucket":"b"}}`), Prefix: "default/old", Revision: 7},
		"a moment":                          {Prefix: "default/demo", Time: &moment},
		"a full by its name":                {Prefix: "default/demo", Name: "00000000000000ff-1700000000000.snap.zst"},
		"a revision of a lineage":           {Prefix: "default/demo", Lineage: "00000001-ab", Revision: 7},
		"a file of its own store":           {File: "old/snapshot.db"},
		"an unknown origin":                 {Unresolved: "there is no EtcdSnapshot a"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := want.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := Config{Restore: text}.RestoreOrder()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", text, diff)
			}
		})
	}
	if got, err := (Config{}).RestoreOrder(); got != nil || err != nil {
		t.Errorf("no flag: got %v %v, want neither", got, err)
	}
}
