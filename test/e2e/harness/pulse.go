package harness

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// pulsePace is how often the machine is felt. A stall that is shorter than this may be missed; it does not matter either.
const pulsePace = 250 * time.Millisecond

// pulse measures for how long the machine lets those wait that want to run or to write: this process, the disk of the rig, and
// the etcds, which the kernel may let wait while we run. It is what an etcd that stands still may be excused by.
type pulse struct {
	file   *os.File
	queues queues

	mu   sync.Mutex
	felt []stall
}

// stall is how long someone had waited at a time.
type stall struct {
	at   time.Time
	long time.Duration
}

func (p *pulse) open() error {
	dir, err := binaries.CacheDir()
	if err != nil {
		return err
	}
	if p.file, err = os.CreateTemp(dir, "pulse-*"); err != nil {
		return err
	}
	return os.Remove(p.file.Name()) // it is there for as long as it is open
}

func (p *pulse) run(ctx context.Context) error {
	defer p.file.Close()
	p.queues.longest() // what was before counts for nothing
	for begun := time.Now(); pause(ctx, pulsePace); begun = time.Now() {
		if _, err := p.file.WriteAt([]byte{1}, 0); err != nil {
			return errors.Join(err, p.file.Sync())
		}
		if err := p.file.Sync(); err != nil {
			return err
		}
		p.feel(stall{at: time.Now(), long: max(time.Since(begun)-pulsePace, p.queues.longest())})
	}
	return nil
}

func (p *pulse) feel(s stall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.felt = append(p.felt, s)
}

// stall is the longest wait since a time, which is not asked for with an earlier one any more.
func (p *pulse) stall(since time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.felt = slices.DeleteFunc(p.felt, func(s stall) bool { return s.at.Before(since) })
	for _, s := range p.felt {
		longest = max(longest, s.long)
	}
	return longest
}
