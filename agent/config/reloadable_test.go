package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReloadableIsReadAsItWasWritten(t *testing.T) {
	want := Reloadable{LogLevel: "debug", RenewInterval: Duration(20 * time.Second), LeaseDuration: Duration(time.Minute),
		SuperfluousGracePeriod: Duration(90 * time.Second), ComparisonInterval: Duration(time.Hour),
		Defragmentation: Defragmentation{Enabled: true, Schedule: "0 3 * * *", TimeZone: "Europe/Berlin", Window: Duration(2 * time.Hour), MinFreePercent: 30,
			MinFreeBytes: 7, Interval: Duration(2 * time.Minute), OutOfSpace: OutOfSpaceDefragment, HistoryWindow: Duration(time.Minute)},
		Backup: saved()}
	content, err := want.YAML()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseReloadable(content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s\n(-got +want)\n%s", content, diff)
	}
}

func TestParseReloadable(t *testing.T) {
	changed := func(change func(*Reloadable)) Reloadable { r := DefaultReloadable(); change(&r); return r }
	for name, test := range map[string]struct {
		content string
		want    Reloadable
		wantErr string
	}{
		"an empty file is the defaults": {"", DefaultReloadable(), ""},
		"a key left out has its default": {
			"logLevel: debug", changed(func(r *Reloadable) { r.LogLevel = "debug" }), "",
		},
		"a key of a younger druid is left alone": {"fromTheFuture: 1", DefaultReloadable(), ""},
		"a level that is none":                   {"logLevel: loud", Reloadable{}, `logLevel is "loud", want debug, info, warn or error`},
		"a duration without a unit":              {`renewInterval: "15"`, Reloadable{}, "want a number with a unit"},
		"renewals that flood the API server":     {"renewInterval: 10ms", Reloadable{}, "renewInterval is 10ms, want 1s to 5m0s"},
		"a Lease that two lost renewals end": {
			"leaseDuration: 44s", Reloadable{}, "leaseDuration is 44s, want 45s to 1h0m0s: set it to three times renewInterval or more",
		},
		"a Lease that three renewals fit into": {"{renewInterval: 5s, leaseDuration: 15s}", changed(func(r *Reloadable) {
			r.RenewInterval, r.LeaseDuration = Duration(5*time.Second), Duration(15*time.Second)
		}), ""},
		"a Lease of half a second more": {"leaseDuration: 45.5s", Reloadable{}, "leaseDuration is 45.5s, want a multiple of 1s"},
		"members are compared all the time": {
			"comparisonInterval: 9s", Reloadable{}, "comparisonInterval is 9s, want 10s to 168h0m0s: 4h is the default",
		},
		"no grace": {
			"{renewInterval: 1s, leaseDuration: 3s, superfluousGracePeriod: 9s}", Reloadable{}, "superfluousGracePeriod is 9s, want 10s to 24h",
		},
		"a grace below a Lease's duration": {
			"superfluousGracePeriod: 44s", Reloadable{}, "superfluousGracePeriod is 44s, want 45s to 24h0m0s: set it to leaseDuration or more",
		},
		"a backup without a store": {"backup: {prefix: a/b}", Reloadable{}, "backup.store is empty"},
		"a schedule that is none":  {"backup: {full: {schedule: daily}}", Reloadable{}, `backup.full: schedule "daily"`},
		"no YAML":                  {"{", Reloadable{}, "parse"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseReloadable([]byte(test.content))
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %v, want %q in it", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

// TestBadConfigKeepsFormerAndLogsOnce: bad content leaves the former in force and is logged once.
func TestBadConfigKeepsFormerAndLogsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	var out bytes.Buffer
	live := NewLive(path, slog.New(slog.NewJSONHandler(&out, nil)))
	var refused int
	live.Loaded = func(_ Reloadable, err error) {
		if err != nil {
			refused++
		}
	}
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		live.load(t.Context())
		live.load(t.Context())
	}

	live.load(t.Context())
	if got := live.Current(); !reflect.DeepEqual(got, DefaultReloadable()) {
		t.Errorf("without a file: got %+v, want the defaults", got)
	}
	write("logLevel: warn")
	write("logLevel: loud")
	if got := live.Current().LogLevel; got != "warn" {
		t.Errorf("after bad content: logLevel %q, want warn", got)
	}
	if refused != 1 || strings.Count(out.String(), "configuration file invalid, keeping the previous one") != 1 {
		t.Errorf("refused %d times, want once; log:\n%s", refused, out.String())
	}
	write("logLevel: error")
	if got := live.Current().LogLevel; got != "error" {
		t.Errorf("after good content: logLevel %q, want error", got)
	}
}

func TestWindowsOpenWhenTheScheduleFires(t *testing.T) {
	nightly := Defragmentation{Schedule: "0 3 * * *", Window: Duration(time.Hour)}
	berlin, sundays := nightly, nightly
	berlin.TimeZone = "Europe/Berlin"
	sundays.Schedule = "30 2 * * sun"
	for name, tc := range map[string]struct {
		d    Defragmentation
		at   string
		want bool
	}{
		"no schedule":                  {Defragmentation{}, "2026-11-21T12:00:00Z", true},
		"a second before":              {nightly, "2026-11-21T02:59:59Z", false},
		"as it fires":                  {nightly, "2026-11-21T03:00:00Z", true},
		"at the window's end":          {nightly, "2026-11-21T03:59:59Z", true},
		"after it":                     {nightly, "2026-11-21T04:00:00Z", false},
		"a time in another zone":       {nightly, "2026-11-21T04:30:00+01:00", true},
		"in Berlin, in winter":         {berlin, "2026-11-21T02:30:00Z", true},
		"in Berlin, in winter, by UTC": {berlin, "2026-11-21T03:30:00Z", false},
		"in Berlin, in summer":         {berlin, "2026-07-21T01:30:00Z", true},
		"on Sunday":                    {sundays, "2026-11-22T02:45:00Z", true},
		"on Saturday":                  {sundays, "2026-11-21T02:45:00Z", false},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, tc.at)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tc.d.Open(at)
			if err != nil || got != tc.want {
				t.Errorf("got %t, %v; want %t", got, err, tc.want)
			}
		})
	}
}

// TestUnreadableScheduleOpensNoWindow: a schedule that cannot be read opens no window.
func TestUnreadableScheduleOpensNoWindow(t *testing.T) {
	for name, d := range map[string]Defragmentation{
		"four fields":              {Schedule: "0 3 * *"},
		"a range backwards":        {Schedule: "0 5-3 * * *"},
		"an hour that is none":     {Schedule: "0 24 * * *"},
		"the parser's zone":        {Schedule: "TZ=UTC 0 3 * * *"},
		"what the parser dies of":  {Schedule: "TZ=UTC"},
		"an unknown zone":          {Schedule: "0 3 * * *", TimeZone: "Europe/Atlantis"},
		"a day that never comes":   {Schedule: "0 0 31 2 *"},
		"a zone that leaves /etc/": {Schedule: "0 3 * * *", TimeZone: "../etc/passwd"},
	} {
		t.Run(name, func(t *testing.T) {
			d.Window = Duration(24 * time.Hour)
			if open, err := d.Open(time.Now()); err == nil || open {
				t.Errorf("got %t, %v", open, err)
			}
		})
	}
	r, err := ParseReloadable([]byte("logLevel: debug\ndefragmentation: {enabled: true, schedule: often}"))
	if err != nil || r.LogLevel != "debug" || !r.Defragmentation.Enabled {
		t.Errorf("got %+v, %v; want a file in force whose schedule opens no window", r, err)
	}
}

// TestDefragmentationOffByDefault: defragmentation is off unless the file reports on.
func TestDefragmentationOffByDefault(t *testing.T) {
	for name, content := range map[string]string{"no file": "", "no word of it": "logLevel: debug", "other words": "defragmentation: {minFreePercent: 10}"} {
		t.Run(name, func(t *testing.T) {
			r, err := ParseReloadable([]byte(content))
			if err != nil || r.Defragmentation.Enabled || r.Defragmentation.Window != Duration(time.Hour) {
				t.Errorf("got %+v, %v", r.Defragmentation, err)
			}
		})
	}
	for content, want := range map[string]string{
		"window: 1s":         "defragmentation.window is 1s, want 1m0s to 24h0m0s",
		"interval: 1s":       "defragmentation.interval is 1s, want 5s to 1h0m0s",
		"historyWindow: 2h":  "defragmentation.historyWindow is 2h0m0s, want 1s to 1h0m0s",
		"outOfSpace: Panic":  `defragmentation.outOfSpace is "Panic", want Compact, Defragment or Nothing`,
		"minFreePercent: 0":  "defragmentation.minFreePercent is 0, want 1 to 99",
		"minFreeBytes: -100": "defragmentation.minFreeBytes is -100, want 0 or more",
	} {
		if _, err := ParseReloadable([]byte("defragmentation: {" + content + "}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", content, err, want)
		}
	}
}
