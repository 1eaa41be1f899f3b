package agent

import (
	"math"
	"slices"
	"time"

	"github.com/etcd-druid/druid/leases"
)

const (
	// fsyncOver is the time over which the 99th percentile is taken, as in the recording rule of druid's metrics.
	fsyncOver = 5 * time.Minute
	// minFsyncs is how many writes a 99th percentile needs: with fewer, it is the longest one of them.
	minFsyncs = 100
	// longFsyncs is the time in writes from which fewer than minFsyncs are enough for a verdict: 20 % of fsyncOver. Each
	// of them takes more than 0.6 s on average then, so the longest one takes more than verySlowAt. Without this, the
	// slowest disks have no verdict: they cannot write 100 times in five minutes.
	longFsyncs = fsyncOver / 5
	// maxGap is the longest time between two reads that are compared. It is four times fsyncInterval. What was counted in
	// a longer gap might be old.
	maxGap = time.Minute
	// slowAt is etcd's default interval between the heartbeats of a leader (--heartbeat-interval, 100 ms). The raft loop of etcd sends no
	// heartbeat while it writes the log. etcd recommends a 99th percentile below 10 ms (FAQ, "What does the etcd warning 'failed to send out
	// heartbeat on time' mean?"), which many network volumes miss without harm.
	slowAt = 100 * time.Millisecond
	// verySlowAt is half of etcd's default election timeout (--election-timeout, 1 s), after which followers elect another leader. etcd's own
	// alert etcdHighFsyncDurations (contrib/mixin) and druid's EtcdDiskSlow have the same limit.
	verySlowAt = 500 * time.Millisecond
	// wellAgain is the part of a limit below which a verdict improves, so that a disk at the limit does not change its
	// verdict again and again.
	wellAgain = 0.5
)

// bucket of a histogram: count is how many values were at most bound seconds, since etcd started.
type bucket struct {
	bound, count float64
}

// histogram of etcd. Its last bucket has all values. sum is the sum of the values in seconds, since etcd started.
type histogram struct {
	buckets []bucket
	sum     float64
}

// fsyncRead is one read of the histogram.
type fsyncRead struct {
	at time.Time
	histogram
}

// fsyncWindow has the reads of the last minutes, and the verdict from them.
type fsyncWindow struct {
	// reads are at most fsyncOver old, except for the first one, which is the base of the difference.
	reads []fsyncRead
	// last is the last verdict about the running etcd, zero for none. A member that hardly writes keeps its verdict, but without a measured
	// time, so that leadership is not moved to it.
	last leases.Fsync
}

// add takes a read, or none if etcd did not answer. Reads of two processes of etcd cannot be compared, because a process counts from zero.
func (w *fsyncWindow) add(now time.Time, h histogram) {
	w.last.P99 = 0
	if len(h.buckets) == 0 {
		return
	}
	if n := len(w.reads); n > 0 {
		switch before := w.reads[n-1]; {
		case restarted(before.histogram, h):
			*w = fsyncWindow{}
		case now.Sub(before.at) > maxGap:
			w.reads = nil
		}
	}
	w.reads = append(w.reads, fsyncRead{now, h})
	for len(w.reads) > 1 && now.Sub(w.reads[1].at) >= fsyncOver {
		w.reads = slices.Delete(w.reads, 0, 1)
	}
	if p99, bound, known := percentile(w.reads[0].histogram, h); known {
		w.last = leases.Fsync{Speed: speedOf(w.last.Speed, p99), P99: bound}
	}
}

// restarted says whether another process of etcd counted after than before.
func restarted(before, after histogram) bool {
	if len(before.buckets) != len(after.buckets) {
		return true
	}
	for i, b := range after.buckets {
		if b.bound != before.buckets[i].bound || b.count < before.buckets[i].count {
			return true
		}
	}
	return false
}

// percentile returns the 99th percentile of what was counted between two reads, and the bound of its bucket. Within the bucket it is
// interpolated, as Prometheus does. It is not known with fewer than minFsyncs values, unless they took longFsyncs or more.
func percentile(from, to histogram) (p99, bound time.Duration, known bool) {
	last := len(to.buckets) - 1
	total := to.buckets[last].count - from.buckets[last].count
	if total < minFsyncs && (total < 1 || to.sum-from.sum < longFsyncs.Seconds()) {
		return 0, 0, false
	}
	rank, below, floor := total*0.99, 0.0, 0.0
	for i, b := range to.buckets {
		n := b.count - from.buckets[i].count
		if math.IsInf(b.bound, 1) {
			break
		}
		if n >= rank {
			return seconds(floor + (b.bound-floor)*(rank-below)/(n-below)), seconds(b.bound), true
		}
		below, floor = n, b.bound
	}
	return seconds(floor), seconds(floor), floor > 0
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// speedOf returns the verdict. It becomes worse at a limit, and better only clearly below it.
func speedOf(before leases.DiskSpeed, p99 time.Duration) leases.DiskSpeed {
	exceeds := func(limit time.Duration, already bool) bool {
		if already {
			return p99 >= time.Duration(float64(limit)*wellAgain)
		}
		return p99 > limit
	}
	switch {
	case exceeds(verySlowAt, before == leases.SpeedVerySlow):
		return leases.SpeedVerySlow
	case exceeds(slowAt, before == leases.SpeedSlow || before == leases.SpeedVerySlow):
		return leases.SpeedSlow
	default:
		return leases.SpeedOK
	}
}
