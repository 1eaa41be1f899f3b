package config

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// reloadInterval is how often the file is looked at. The kubelet itself brings a changed ConfigMap into a Pod only every
// minute or so; reading some hundred bytes costs less than a watch of the links that it swaps.
const reloadInterval = 10 * time.Second

// Live is the configuration file as it stands now. Content that cannot be used leaves the former one in force.
type Live struct {
	path string
	log  *slog.Logger
	// Loaded is informed of every content that was tried: nil for one that is in force now. It may be nil.
	Loaded func(Reloadable, error)

	current atomic.Pointer[Reloadable]
	// tried is what was last looked at: the content, or the error that came instead of it.
	tried string
}

// NewLive returns the configuration at path, with the defaults in force until Run has read it.
func NewLive(path string, log *slog.Logger) *Live {
	l := &Live{path: path, log: log}
	initial := DefaultReloadable()
	l.current.Store(&initial)
	return l
}

// Current is the configuration in force.
func (l *Live) Current() Reloadable { return *l.current.Load() }

// Run reads the file now and whenever it has changed, until ctx ends.
func (l *Live) Run(ctx context.Context) error {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		l.load(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// load does something only when what it sees is not what it saw before.
func (l *Live) load(ctx context.Context) {
	content, err := os.ReadFile(l.path)
	seen := "content:" + string(content)
	if err != nil {
		seen = "error:" + err.Error()
	}
	if seen == l.tried {
		return
	}
	l.tried = seen
	if errors.Is(err, fs.ErrNotExist) {
		l.log.InfoContext(ctx, "configuration file absent", "path", l.path)
		return
	}
	var next Reloadable
	if err == nil {
		next, err = ParseReloadable(content)
	}
	if err != nil {
		l.log.ErrorContext(ctx, "configuration file refused", "path", l.path, "err", err)
	} else {
		l.current.Store(&next)
		l.log.InfoContext(ctx, "configuration file loaded", "path", l.path)
	}
	if l.Loaded != nil {
		l.Loaded(next, err)
	}
}
