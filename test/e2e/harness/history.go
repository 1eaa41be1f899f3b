package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// History is a record of all that clients of a cluster do and see, made and validated by etcd's own robustness tests (tools/robustness).
// etcd's model needs an etcd that never had a key, and no requests of anybody else but of this record.
type History struct {
	cluster *Cluster
	program string
	dir     string
	copied  bool // the logs are in dir
	record  *exec.Cmd
	stop    io.Closer
	ended   chan struct{}
	end     errgroup.Group
	printed bytes.Buffer
	logs    int
	begun   time.Time
	made    int // operations
}

const (
	// mostOperations are how many the clients make, however long they run, but for the slowest rate. Two cores validate 25 000 operations
	// within a minute, and 50 000 in more than three.
	mostOperations = 25_000
	// slowestRate is the operations per second below which the clients do not fall.
	slowestRate = 10
	// undecided is the exit code of a validation that found no order of the operations and excluded none in its time, as in
	// tools/robustness/main.go.
	undecided = 3
)

// History starts clients of each member and of all members. kind is etcd or kubernetes. The longer they run, the slower they are.
func (c *Cluster) History(t testing.TB, kind string) *History {
	t.Helper()
	built, err := binaries.Programs(t.Context(), t.Logf, "robustness")
	if err != nil {
		t.Fatal(err)
	}
	h := &History{cluster: c, program: built["robustness"], ended: make(chan struct{}), begun: time.Now(), dir: filepath.Join(t.TempDir(), "history")}
	h.record = exec.CommandContext(context.WithoutCancel(t.Context()), h.program, "record",
		"-traffic", kind, "-about", strconv.Itoa(mostOperations), "-slowest", strconv.Itoa(slowestRate), "-out", h.dir, "-endpoints", strings.Join(c.Slots(t), ","))
	h.record.Stdout, h.record.Stderr = &h.printed, &h.printed
	if h.stop, err = h.record.StdinPipe(); err == nil {
		err = h.record.Start()
	}
	if err != nil {
		t.Fatalf("record the history of %s: %v", c, err)
	}
	h.end.Go(func() error {
		defer close(h.ended)
		return h.record.Wait()
	})
	t.Cleanup(func() {
		_ = h.record.Process.Kill()
		_ = h.end.Wait()
	})
	return h
}

// Running returns an error if the clients ended.
func (h *History) Running() error {
	select {
	case <-h.ended:
		return fmt.Errorf("the clients of %s ended (%w): %s", h.cluster, h.end.Wait(), h.printed.String())
	default:
		return nil
	}
}

// Keep keeps the log of a member, as it is and what etcd still appends to it, also if the volume loses it later. The validation reads it.
// Keep the logs of all members before the first fault, and of those that joined before the last one.
func (h *History) Keep(t testing.TB, members ...string) {
	t.Helper()
	for _, member := range members {
		from := h.cluster.VolumeOf(t, member).Dir
		segments, err := filepath.Glob(filepath.Join(from, "data/member/wal/*.wal"))
		if err != nil || len(segments) == 0 {
			t.Fatalf("volume %s of %s has no log: %v", from, member, err)
		}
		to := filepath.Join(h.kept(), fmt.Sprintf("%02d-%s", h.logs, member))
		h.logs++
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, segment := range segments {
			if err := os.Link(segment, filepath.Join(to, filepath.Base(segment))); err != nil {
				t.Fatalf("keep the log of %s: %v", member, err)
			}
		}
	}
}

func (h *History) kept() string { return h.dir + "-logs" }

// Stop ends the record and returns what it contains.
func (h *History) Stop(t testing.TB) string {
	t.Helper()
	_ = h.stop.Close()
	if err := h.end.Wait(); err != nil {
		t.Fatalf("record the history of %s: %v: %s", h.cluster, err, h.printed.String())
	}
	var s struct{ Succeeded, Failed int }
	if err := json.Unmarshal(h.printed.Bytes(), &s); err != nil {
		t.Fatalf("the record of %s says %q: %v", h.cluster, h.printed.String(), err)
	}
	h.made = s.Succeeded + s.Failed
	// An operation that fails is not always counted by the limit of the rate.
	if most := mostOperations + slowestRate*int(time.Since(h.begun).Seconds()); s.Succeeded > most {
		t.Errorf("%d operations succeeded, more than %d: the validation may not end", s.Succeeded, most)
	}
	return strings.TrimSpace(h.printed.String())
}

// searchFor is for how long the validation of so many operations searches for their order: ten times what two idle cores need, and
// more than that for few.
func searchFor(operations int) time.Duration {
	return max(5*time.Minute, time.Duration(operations)*24*time.Millisecond)
}

// Validate fails the test if the record contradicts the promises of etcd: linearizable operations, watches that miss nothing and repeat
// nothing, and reads of earlier revisions that agree with the log. It then keeps the record for inspection.
func (h *History) Validate(t testing.TB) string {
	t.Helper()
	h.copyLogs(t)
	search := searchFor(h.made)
	ctx, cancel := context.WithTimeout(t.Context(), 2*search) // the other checks read the record once
	defer cancel()
	printed, err := exec.CommandContext(ctx, h.program, "validate", "-search", search.String(), h.dir).CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil: // it is valid
	case ended && exit.ExitCode() == undecided:
		t.Errorf("the validation of the history of %s (kept in %s) did not end: %s", h.cluster, h.save(t), printed)
	default:
		Unsafe(t, "the history of %s is not valid (kept in %s): %v: %s", h.cluster, h.save(t), err, printed)
	}
	return strings.TrimSpace(string(printed))
}

// copyLogs copies the logs that were kept to the record: the program repairs the end of a log in place, and the file may be one that
// etcd uses.
func (h *History) copyLogs(t testing.TB) {
	t.Helper()
	if h.copied {
		return
	}
	logs, err := filepath.Glob(filepath.Join(h.kept(), "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log of a member was kept: %v", err)
	}
	for _, log := range logs {
		to := filepath.Join(h.dir, "server-"+filepath.Base(log), "member", "wal")
		if err := os.CopyFS(to, os.DirFS(log)); err != nil {
			t.Fatalf("copy the log %s: %v", log, err)
		}
	}
	h.copied = true
}

// Value is what a key had at a revision. A value of 20 bytes or more is a hash (FNV-1a of 32 bits), as in etcd's model.
type Value struct {
	Value struct {
		Value string
		Hash  uint32
	}
	ModRevision, Version int64
}

// ValueOf is the Value of a key that etcd returned.
func ValueOf(kv *mvccpb.KeyValue) (v Value) {
	v.ModRevision, v.Version = kv.ModRevision, kv.Version
	if len(kv.Value) < 20 {
		v.Value.Value = string(kv.Value)
		return v
	}
	sum := fnv.New32a()
	_, _ = sum.Write(kv.Value)
	v.Value.Hash = sum.Sum32()
	return v
}

// States returns the keys at each of the revisions, by the logs of the members that were kept.
func (h *History) States(t testing.TB, revisions []int64) (states map[int64]map[string]Value) {
	t.Helper()
	h.copyLogs(t)
	words := make([]string, len(revisions))
	for i, revision := range revisions {
		words[i] = strconv.FormatInt(revision, 10)
	}
	printed, err := exec.CommandContext(t.Context(), h.program, "states", "-revisions", strings.Join(words, ","), h.dir).Output()
	if err == nil {
		err = json.Unmarshal(printed, &states)
	}
	if err != nil {
		t.Fatalf("the states at revisions %v by the logs of %s: %v", revisions, h.cluster, err)
	}
	return states
}

// save keeps the record after the test.
func (h *History) save(t testing.TB) string {
	t.Helper()
	to := ""
	cache, err := binaries.CacheDir()
	if err == nil {
		to, err = os.MkdirTemp(filepath.Join(cache, "tests"), "history-")
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(to, "record"), os.DirFS(h.dir))
	}
	if err != nil {
		t.Errorf("keep the history: %v", err)
	}
	return to
}
