package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// fsyncInterval is the time between two reads of etcd's metrics. It is that between two renewals, with which the result is reported.
const fsyncInterval = 15 * time.Second

// maxMetrics bounds what is read of etcd's metrics, in bytes. An etcd with many clients has 200 KiB.
const maxMetrics = 4 << 20

// fsyncMetric is etcd's histogram of how long it takes to write the log to the disk, in seconds. A member votes and acknowledges nothing
// before that, so this is the disk that clients and elections wait for. The other histogram of the disk, of commits of the database
// (etcd_disk_backend_commit_duration_seconds), is left out: etcd commits in the background.
const fsyncMetric = "etcd_disk_wal_fsync_duration_seconds"

// disk measures how fast the member's etcd writes its log, from etcd's own metrics.
type disk struct {
	client *http.Client
	url    string
	every  time.Duration
	mayRun func() bool
	log    *slog.Logger
	// measured receives each result, also an unchanged one.
	measured func(leases.Fsync)
	trouble  loop.Change[string]

	mu     sync.Mutex
	window fsyncWindow
}

// now returns the verdict if the last minutes had enough writes for one, or else the zero Fsync.
func (d *disk) now() leases.Fsync {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.window.last.Fresh() {
		return leases.Fsync{}
	}
	return d.window.last
}

// Run measures until ctx ends. It logs an error once per change and retries.
func (d *disk) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		d.measure(ctx)
		loop.Sleep(ctx, d.every)
	}
	return nil
}

func (d *disk) measure(ctx context.Context) {
	var counted histogram
	err := errors.New("etcd does not run")
	if d.mayRun() {
		counted, err = d.read(ctx)
	}
	text := ""
	if err != nil && d.mayRun() {
		text = err.Error()
	}
	if d.trouble.To(text) && text != "" && ctx.Err() == nil {
		d.log.WarnContext(ctx, "metrics of etcd not read, retrying", "err", err)
	}
	if ctx.Err() != nil {
		return
	}
	d.mu.Lock()
	d.window.add(time.Now(), counted) // none: nothing is known of the time since the last read
	last := d.window.last
	d.mu.Unlock()
	d.measured(last)
}

// read gets the histogram from etcd.
func (d *disk) read(ctx context.Context) (histogram, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return histogram{}, fmt.Errorf("read metrics of etcd: %w", err)
	}
	response, err := d.client.Do(request)
	if err != nil {
		return histogram{}, fmt.Errorf("read metrics of etcd: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return histogram{}, fmt.Errorf("read metrics of etcd: %s: status %d, want %d", d.url, response.StatusCode, http.StatusOK)
	}
	return parseHistogram(io.LimitReader(response.Body, maxMetrics))
}

// parseHistogram reads the histogram from the text format of Prometheus, which has a line per bucket, in the order of
// their bounds, and then the sum. It reads to the end, so that the connection can be used again.
func parseHistogram(r io.Reader) (h histogram, err error) {
	lines, summed := bufio.NewScanner(r), false
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), fsyncMetric+"_")
		if !found {
			continue
		}
		if sum, found := strings.CutPrefix(rest, "sum "); found {
			if h.sum, err = strconv.ParseFloat(sum, 64); err != nil {
				return histogram{}, fmt.Errorf("read metrics of etcd: the line %q is not the sum of a histogram", lines.Text())
			}
			summed = true
			continue
		}
		if rest, found = strings.CutPrefix(rest, `bucket{le="`); !found {
			continue
		}
		bound, count, found := strings.Cut(rest, `"} `)
		le, boundErr := strconv.ParseFloat(bound, 64)
		n, countErr := strconv.ParseFloat(count, 64)
		if !found || boundErr != nil || countErr != nil {
			return histogram{}, fmt.Errorf("read metrics of etcd: the line %q is not a bucket of a histogram", lines.Text())
		}
		h.buckets = append(h.buckets, bucket{bound: le, count: n})
	}
	if err := lines.Err(); err != nil {
		return histogram{}, fmt.Errorf("read metrics of etcd: %w", err)
	}
	if len(h.buckets) == 0 || !summed {
		return histogram{}, fmt.Errorf("read metrics of etcd: they lack %s", fsyncMetric)
	}
	return h, nil
}
