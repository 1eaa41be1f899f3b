package config

import (
	"strings"
	"testing"
	"time"
)

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
		"no schedule":                        {Defragmentation{}, "2026-11-21T12:00:00Z", true},
		"a second before":                    {nightly, "2026-11-21T02:59:59Z", false},
		"as it fires":                        {nightly, "2026-11-21T03:00:00Z", true},
		"at the window's end":                {nightly, "2026-11-21T03:59:59Z", true},
		"after it":                           {nightly, "2026-11-21T04:00:00Z", false},
		"another machine's zone is no one's": {nightly, "2026-11-21T04:30:00+01:00", true},
		"in Berlin, in winter":               {berlin, "2026-11-21T02:30:00Z", true},
		"in Berlin, in winter, by UTC":       {berlin, "2026-11-21T03:30:00Z", false},
		"in Berlin, in summer":               {berlin, "2026-07-21T01:30:00Z", true},
		"on Sunday":                          {sundays, "2026-11-22T02:45:00Z", true},
		"on Saturday":                        {sundays, "2026-11-21T02:45:00Z", false},
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

func TestAScheduleThatCannotBeReadOpensNoWindow(t *testing.T) {
	for name, d := range map[string]Defragmentation{
		"four fields":              {Schedule: "0 3 * *"},
		"a range backwards":        {Schedule: "0 5-3 * * *"},
		"an hour that is none":     {Schedule: "0 24 * * *"},
		"the parser's zone":        {Schedule: "TZ=UTC 0 3 * * *"},
		"what the parser dies of":  {Schedule: "TZ=UTC"},
		"a zone that is no one's":  {Schedule: "0 3 * * *", TimeZone: "Europe/Atlantis"},
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

func TestDefragmentationIsOffUnlessTheFileSaysOn(t *testing.T) {
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
