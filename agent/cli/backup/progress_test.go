package backup

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
)

func TestProgress(t *testing.T) {
	for part, want := range map[float64]string{
		0: "[                              ]   0%", 0.5: "[===============               ]  50%", 1: "[==============================] 100%",
	} {
		if got := bar(part); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var out strings.Builder
	p := newProgress(&out)
	for i := range int64(100) {
		p.report(restore.Progress{Phase: restore.Fetching, Bytes: i, TotalBytes: 100})
	}
	p.report(restore.Progress{Phase: restore.Finishing})
	p.end()
	want := "full backup: 0 of 0 MiB, rate unknown, remaining time unknown; 0 delta backups follow\nreached revision 0, making the data " +
		"durable, remaining time unknown\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want a line for each phase", got)
	}
}

func TestProgressOfReading(t *testing.T) {
	for name, c := range map[string]struct {
		total, bytes int64
		took         time.Duration
		want         string
	}{
		"nothing is read":          {1 << 30, 0, time.Minute, "Copying: 0% of 1.0 GiB"},
		"too early for a speed":    {1 << 30, 1 << 29, rateAfter - 1, "Copying: 50% of 1.0 GiB"},
		"a quarter in ten seconds": {1 << 30, 1 << 28, 10 * time.Second, "Copying: 25% of 1.0 GiB, 25.6 MiB/s, about 30s remaining"},
		"more than is listed":      {1 << 20, 2 << 20, time.Second, "Copying: 100% of 1.0 MiB, 1.0 MiB/s, about 0s remaining"},
		"there are no backups":     {0, 0, time.Minute, "Copying: 0% of 0 B"},
	} {
		if got := (&reading{what: "Copying", total: c.total}).words(c.bytes, c.took); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	seven := catalog.History{Fulls: []catalog.Full{{Size: 5}}, Deltas: []catalog.Delta{{Size: 2}}}
	r := newReading(io.Discard, "Checking", catalog.Catalog{Histories: []catalog.History{seven}}, 1)
	if s, err := dir.Open(store.Directory{Path: t.TempDir()}); err != nil || r.total != 7 || r.of(s) != store.Store(s) {
		t.Errorf("without a terminal, it reads %d bytes from another store, %v", r.total, err)
	}
}

// distant is a store with several connections and with versions of its objects.
type distant struct{ store.Store }

func (distant) Connections() int { return 8 }

func (distant) Get(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return struct {
		io.ReadCloser
		versioned
	}{io.NopCloser(strings.NewReader("twelve bytes")), "v7"}, nil
}

type versioned string

func (v versioned) Version() string { return string(v) }

func TestCountedStoreReadsAsBefore(t *testing.T) {
	n := 0
	s := counted{distant{}, func(more int) { n += more }}
	r, err := s.Get(t.Context(), "key", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if v, ok := r.(store.Versioned); err != nil || string(text) != "twelve bytes" || n != 12 || !ok || v.Version() != "v7" || store.Connections(s) != 8 {
		t.Errorf("read %q, %v, counted %d, over %d connections, from %+v", text, err, n, store.Connections(s), r)
	}
}
