package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"time"

	agentcli "github.com/etcd-druid/druid/agent/cli"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
)

// tasks are what a process can be ordered to do. Each returns a result of its own.
var tasks = map[string]func(context.Context, task) (map[string]float64, error){
	"full":     takeFull,
	"stream":   readStream,
	"compress": compressOnly,
	"upload":   uploadOnly,
	"record":   record,
	"watch":    watchOnly,
	"restore":  restoreLatest,
	"append":   appendOnly,
	"write":    writeOnly,
}

// child is the process: it does its task and reports what that cost.
func child(text string) int {
	debug.SetGCPercent(agentcli.GCPercent) // as the agent, whose work it does
	u, err := do(text)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(u)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "backup bench:", err)
		return 1
	}
	return 0
}

func do(text string) (u usage, err error) {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return u, err
	}
	stop, err := profile(t)
	if err != nil {
		return u, err
	}
	begin := time.Now()
	if u.More, err = tasks[t.Kind](context.Background(), t); err != nil {
		return u, fmt.Errorf("%s: %w", t.Kind, err)
	}
	u.Wall = time.Since(begin).Seconds()
	if err := stop(); err != nil {
		return u, err
	}
	if u.Resident, err = statusOf(os.Getpid(), "VmHWM"); err != nil {
		return u, err
	}
	u.Written, err = written()
	return u, err
}

// profile begins a profile, where one is wanted.
func profile(t task) (stop func() error, err error) {
	if t.Profiles == "" {
		return func() error { return nil }, nil
	}
	name := filepath.Join(t.Profiles, fmt.Sprintf("%s-%d", t.Kind, os.Getpid()))
	f, err := os.Create(name + ".cpu")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		heap, err := os.Create(name + ".heap")
		if err != nil {
			return err
		}
		return errors.Join(f.Close(), pprof.Lookup("allocs").WriteTo(heap, 0), heap.Close())
	}, nil
}

func (t task) store(ctx context.Context) (store.Store, error) { return open.Open(ctx, t.Store) }
