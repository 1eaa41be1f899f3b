package supervise_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/launch"
)

// TestEtcdRunsUnderLockAndStopsCleanly: etcd runs under the lock and ends in good order.
func TestEtcdRunsUnderLockAndStopsCleanly(t *testing.T) {
	p := newPod(t)
	a, l := p.agent(), p.launch()
	idle := a.asked()
	if idle.Report.Clean || idle.Report.LastExit != nil {
		t.Errorf("first report %+v, want neither clean nor an exit", idle.Report)
	}
	eventually(t, "the probe says alive but not ready", func() bool {
		live, err1 := p.get("/livez")
		ready, err2 := p.get("/readyz")
		return err1 == nil && err2 == nil && strings.HasPrefix(live, "HTTP/1.1 200 ") && strings.HasPrefix(ready, "HTTP/1.1 503 ")
	})
	a.answers <- launch.Order{Kind: launch.OrderWait, Reason: "the record cannot be read"}
	eventually(t, "the probe informs the agent's reason", func() bool {
		ready, err := p.get("/readyz")
		return err == nil && strings.Contains(ready, "the record cannot be read")
	})
	a.answers <- p.etcd()
	pid := a.untilRunning().Report.PID
	eventually(t, "etcd itself answers the probe", func() bool {
		ready, err := p.get("/readyz")
		return err == nil && strings.HasPrefix(ready, "HTTP/1.1 200 ")
	})
	if _, err := volume.Lock(p.volume); !errors.Is(err, volume.ErrInUse) {
		t.Errorf("lock next to a running etcd: %v, want ErrInUse", err)
	}
	if held, err := os.Readlink(filepath.Join("/proc", itoa(pid), "fd", "3")); err != nil || held != filepath.Join(p.volume, volume.LockFile) {
		t.Errorf("etcd's fourth descriptor is %q, %v; want the lock", held, err)
	}
	l.end(t)
	select {
	case <-a.stopping:
	case <-time.After(maxWait): // launch does not wait for an agent that is slow
		t.Error("the agent was not asked to move leadership")
	}
	if exit, err := volume.ReadExit(p.volume); err != nil || !exit.Clean || exit.Crashes != 0 {
		t.Errorf("exit marker %+v, %v, want a clean one", exit, err)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("etcd outlives launch")
	}
}

func TestExitIsReportedWithoutEndingLaunch(t *testing.T) {
	p := newPod(t)
	a, l := p.agent(), p.launch()
	a.asked()
	for crashes := 1; crashes <= 2; crashes++ {
		a.answers <- p.etcd()
		pid := a.untilRunning().Report.PID
		if _, err := volume.ReadExit(p.volume); !errors.Is(err, volume.ErrNoExit) {
			t.Errorf("exit marker next to a running etcd: %v, want none", err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r := a.asked().Report
		if r.Clean || r.Crashes != crashes || r.LastExit == nil || r.LastExit.Code != -1 || r.LastExit.Signal != "killed" {
			t.Errorf("report after SIGKILL %+v (%+v), want crash %d", r, r.LastExit, crashes)
		}
	}
	l.end(t)
	// A successor knows it from the volume.
	p.launch()
	if r := a.asked().Report; r.Clean || r.Crashes != 2 {
		t.Errorf("report of a successor %+v, want unclean after 2 crashes", r)
	}
}

func TestEtcdIsStoppedByOrder(t *testing.T) {
	p := newPod(t)
	a := p.agent()
	p.launch()
	a.asked()
	a.answers <- p.etcd()
	a.untilRunning()
	eventually(t, "etcd is ready", func() bool {
		ready, err := p.get("/readyz")
		return err == nil && strings.HasPrefix(ready, "HTTP/1.1 200 ")
	})
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if err := a.server.Stop(ctx, maxWait, "test"); err != nil {
		t.Fatal(err)
	}
	if r := a.asked().Report; !r.Clean || r.Crashes != 0 {
		t.Errorf("report after an ordered stop %+v, want clean", r)
	}
	if err := a.server.Stop(ctx, time.Second, "again"); err != nil {
		t.Errorf("stop of what does not run: %v, want nil", err)
	}
}

// TestSIGTERMIgnoredThenKilled: a process that ignores SIGTERM is killed after grace.
func TestSIGTERMIgnoredThenKilled(t *testing.T) {
	p := newPod(t)
	a := p.agent()
	p.launch()
	a.asked()
	a.answers <- launch.Order{Kind: launch.OrderStart, Path: os.Args[0], Argv: []string{"etcd"},
		Env: append(os.Environ(), roleVariable+"=stubborn")}
	status := a.untilRunning()
	eventually(t, "SIGTERM is ignored", func() bool { return ignoresSIGTERM(status.Report.PID) })
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	if err := a.server.Stop(ctx, 200*time.Millisecond, "test"); err != nil {
		t.Fatal(err)
	}
	if r := a.asked().Report; r.Clean || r.LastExit.Signal != "killed" {
		t.Errorf("report after SIGKILL %+v, want unclean", r)
	}
}

// TestSilentAgentDelaysNoStop: an agent that does not answer cannot hold up the end.
func TestSilentAgentDelaysNoStop(t *testing.T) {
	p := newPod(t)
	a, l := p.agent(), p.launch()
	a.hang = true
	a.asked()
	a.answers <- p.etcd()
	pid := a.untilRunning().Report.PID
	began := time.Now()
	l.end(t)
	if took := time.Since(began); took < launch.StopGrace || syscall.Kill(pid, 0) == nil {
		t.Errorf("ended after %v, want the grace of %v used and etcd gone", took, launch.StopGrace)
	}
}

func TestEndByAForeignSignalIsNotClean(t *testing.T) {
	p := newPod(t)
	a := p.agent()
	p.launch()
	a.asked()
	a.answers <- launch.Order{Kind: launch.OrderStart, Path: "/bin/sleep", Argv: []string{"sleep", "600"}}
	if err := syscall.Kill(a.untilRunning().Report.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := a.asked().Report; r.Clean || r.Crashes != 1 || r.LastExit.Signal != "terminated" {
		t.Errorf("report %+v (%+v), want a crash", r, r.LastExit)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	p := newPod(t)
	a, l := p.agent(), p.launch()
	a.asked()
	a.answers <- launch.Order{Kind: launch.OrderStart, Path: "/bin/sh", Argv: []string{"sh", "-c", "(sleep 600 &) ; exec sleep 600"}}
	etcd := "/proc/" + itoa(a.untilRunning().Report.PID) + "/stat"
	orphan := 0
	eventually(t, "the orphan is launch's child", func() bool {
		for _, child := range children(t, l.cmd.Process.Pid) {
			if child != etcd {
				orphan, _ = strconv.Atoi(strings.Split(child, "/")[2])
			}
		}
		return orphan != 0
	})
	if err := syscall.Kill(orphan, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "etcd alone is", func() bool { return len(children(t, l.cmd.Process.Pid)) == 1 })
}

func TestEtcdOutlivesTheAgent(t *testing.T) {
	p := newPod(t)
	a, l := p.agent(), p.launch()
	a.asked()
	a.answers <- p.etcd()
	pid := a.untilRunning().Report.PID
	a.stop()
	b := p.agent()
	if got := b.untilRunning().Report.PID; got != pid {
		t.Errorf("the next agent sees etcd as %d, want %d still", got, pid)
	}
	b.stop()
	l.end(t) // without an agent, at once
	if exit, err := volume.ReadExit(p.volume); err != nil || !exit.Clean {
		t.Errorf("exit marker %+v, %v, want a clean one", exit, err)
	}
}

func TestEtcdThatCannotBeStartedIsReported(t *testing.T) {
	p := newPod(t)
	a := p.agent()
	p.launch()
	a.asked()
	if err := volume.WriteExit(p.volume, volume.Exit{Clean: true}); err != nil {
		t.Fatal(err)
	}
	a.answers <- launch.Order{Kind: launch.OrderStart, Path: "/nonexistent/etcd", Argv: []string{"etcd"}}
	r := a.asked().Report
	if r.LastExit == nil || !strings.Contains(r.LastExit.Message, "/nonexistent/etcd: no such file") {
		t.Errorf("report %+v (%+v), want what could not be started", r, r.LastExit)
	}
	if _, err := volume.ReadExit(p.volume); err != nil {
		t.Errorf("exit marker: %v, want it as before", err)
	}
}

func TestKilledLaunchTakesEtcdWithIt(t *testing.T) {
	p := newPod(t)
	a, l := p.agent(), p.launch()
	a.asked()
	a.answers <- p.etcd()
	pid := a.untilRunning().Report.PID
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a.until("launch is gone", func(s launch.Status) bool { return !s.Connected })
	eventually(t, "etcd is gone", func() bool { return syscall.Kill(pid, 0) != nil || isZombie(pid) })
	p.launch()
	if r := a.asked().Report; r.Clean {
		t.Errorf("report after a kill %+v, want unclean", r)
	}
}

func TestVolumeInUseIsReportedUntilItIsFree(t *testing.T) {
	p := newPod(t)
	other, err := volume.Lock(p.volume)
	if err != nil {
		t.Fatal(err)
	}
	a := p.agent()
	p.launch()
	a.until("launch is blocked", func(s launch.Status) bool {
		return s.Report.State == launch.StateBlocked && strings.Contains(s.Report.Error, "in use by another process")
	})
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	a.asked()
}

func TestAgentKeepsTheVolumeOfALaunchThatDied(t *testing.T) {
	p := newPod(t)
	a := p.agent()
	a.copies = make(chan int, 1)
	l := p.launch()
	a.asked()
	held := <-a.copies
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-l.done
	a.until("launch is gone", func(s launch.Status) bool { return !s.Connected })
	if _, err := volume.Lock(p.volume); !errors.Is(err, volume.ErrInUse) {
		t.Errorf("lock while the agent looks at the volume: %v, want ErrInUse", err)
	}
	if err := syscall.Close(held); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is free", func() bool {
		f, err := volume.Lock(p.volume)
		if err == nil {
			_ = f.Close()
		}
		return err == nil
	})
}

func TestMissingVolumeIsReported(t *testing.T) {
	p := newPod(t)
	p.volume = filepath.Join(p.volume, "missing")
	a := p.agent()
	p.launch()
	a.until("the volume is unusable", func(s launch.Status) bool {
		return s.Report.State == launch.StateUnusable && strings.Contains(s.Report.Error, "mount the member's PersistentVolumeClaim")
	})
	if err := os.Mkdir(p.volume, 0o700); err != nil {
		t.Fatal(err)
	}
	a.asked()
}
