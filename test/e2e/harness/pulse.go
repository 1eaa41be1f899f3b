package harness

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// pulsePace is how often the machine is felt. A stall that is shorter than this may be missed; it does not matter either.
const pulsePace = 250 * time.Millisecond

// pulse measures for how long the machine lets a process wait that wants to run and to write to the disk of the rig: what
// an etcd that stands still may be excused by.
type pulse struct {
	file *os.File

	mu      sync.Mutex
	longest time.Duration
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
	for begun := time.Now(); pause(ctx, pulsePace); begun = time.Now() {
		if _, err := p.file.WriteAt([]byte{1}, 0); err != nil {
			return errors.Join(err, p.file.Sync())
		}
		if err := p.file.Sync(); err != nil {
			return err
		}
		p.mu.Lock()
		p.longest = max(p.longest, time.Since(begun)-pulsePace)
		p.mu.Unlock()
	}
	return nil
}

// stall is the longest wait since the last call.
func (p *pulse) stall() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := p.longest
	p.longest = 0
	return longest
}
