package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// queues reports how long the etcds of all members on this machine have waited for a core.
type queues struct {
	looks   int
	threads []string
	waited  map[string]time.Duration // by thread, ever
}

// looksPerSearch is how often the queues are looked at until etcds are searched for again.
const looksPerSearch = 4

// longest is the longest that a thread of an etcd has waited since the last look at it. The kernel counts a wait when it is over.
func (q *queues) longest() (longest time.Duration) {
	if q.looks%looksPerSearch == 0 {
		q.threads = etcdThreads()
	}
	q.looks++
	waited := map[string]time.Duration{}
	for _, thread := range q.threads {
		raw, err := os.ReadFile(filepath.Join(thread, "schedstat"))
		if err != nil {
			continue // it ended while we looked, or the kernel does not count
		}
		now, ok := runDelay(string(raw))
		if !ok {
			continue
		}
		if before, seen := q.waited[thread]; seen {
			longest = max(longest, now-before)
		}
		waited[thread] = now
	}
	q.waited = waited
	return longest
}

// runDelay reads how long a thread waited for a core, ever: the second number of its schedstat, in nanoseconds.
// Source: Documentation/scheduler/sched-stats.rst of Linux.
func runDelay(schedstat string) (time.Duration, bool) {
	fields := strings.Fields(schedstat)
	if len(fields) < 2 {
		return 0, false
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	return time.Duration(ns), err == nil
}

// etcdThreads are the folders of all threads of the members' etcds in /proc. The etcd of a rig's control plane has another name.
func etcdThreads() (threads []string) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil
	}
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(comm)) != string(Etcd) {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(filepath.Dir(name), "task", "[0-9]*")); err == nil {
			threads = append(threads, found...)
		}
	}
	return threads
}
