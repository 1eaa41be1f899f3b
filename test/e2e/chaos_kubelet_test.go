package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// killAgain is the pause between two looks for a kubelet that started again. The rig starts it half a second after its end, and it needs
// longer than that to do anything.
const killAgain = 100 * time.Millisecond

// kubeletKilled kills the kubelet of the member's node each time that it starts, for up to 12 seconds, and a launch of
// the member. Until the kubelet stays, nothing starts the container of etcd again.
func kubeletKilled(t *testing.T, ch *chaos, member string, draw *rand.Rand) {
	at := ch.about(member)
	harness.Eventually(t, healWithin, "the kubelet of "+at.node+" answers", func(ctx context.Context) error { return kubeletAnswers(ctx, at.node) })
	release := keepKubeletDown(t, at.node)
	defer release()
	harness.Eventually(t, time.Minute, "the kubelet of "+at.node+" does not answer", func(ctx context.Context) error {
		if kubeletAnswers(ctx, at.node) == nil {
			return errors.New("it answers")
		}
		return nil
	})
	// The kubelet is down, so a launch that another fault ended does not start again either.
	harness.Eventually(t, healWithin, "launch of "+member+" ended", func(ctx context.Context) error {
		pids, err := ch.processes(ctx, member, harness.Launch)
		for _, pid := range pids {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL), fmt.Errorf("%d ran", pid))
		}
		return err
	})
	ch.lasts(t, time.Duration(3+draw.IntN(9))*time.Second)
	if pids, err := harness.Processes(at.podUID, harness.Launch); err != nil || len(pids) > 0 {
		t.Errorf("launch of %s runs as %v without a kubelet: %v", member, pids, err)
	}
	t.Logf("the kubelet of %s was killed %d times", at.node, release())
	harness.Eventually(t, healWithin, "launch of "+member+" runs again", func(ctx context.Context) error {
		pids, err := ch.processes(ctx, member, harness.Launch)
		if err == nil && len(pids) != 1 {
			err = fmt.Errorf("processes %v", pids)
		}
		return err
	})
}

// keepKubeletDown kills the kubelet of a node now and each time that it starts, until release, which returns how often that was.
func keepKubeletDown(t *testing.T, node string) (release func() int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	killed, done, failed := 0, make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		for ctx.Err() == nil && failed == nil {
			pids, err := kubeletsOf(node)
			for _, pid := range pids {
				if err = syscall.Kill(pid, syscall.SIGKILL); err == nil {
					killed++
				}
			}
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				failed = err
			}
			select {
			case <-ctx.Done():
			case <-time.After(killAgain):
			}
		}
	}()
	once := sync.OnceValue(func() int {
		stop()
		<-done
		if failed != nil || killed == 0 {
			t.Errorf("the kubelet of %s was killed %d times: %v", node, killed, failed)
		}
		return killed
	})
	t.Cleanup(func() { once() })
	return once
}

// kubeletsOf are the processes of the kubelet of a node of this rig, in the process list of the machine that carries the rig.
func kubeletsOf(node string) (pids []int, err error) {
	config := "--config=" + filepath.Join(filepath.Dir(rig.Lab.NodeLogs(node)), "etc", "kubelet.yaml")
	directories, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range directories {
		command, unread := os.ReadFile(filepath.Join(dir, "cmdline"))
		if argv := strings.Split(string(command), "\x00"); unread != nil || filepath.Base(argv[0]) != "kubelet" || !slices.Contains(argv, config) {
			continue
		}
		pid, bad := strconv.Atoi(filepath.Base(dir))
		pids, err = append(pids, pid), errors.Join(err, bad)
	}
	return pids, err
}

// kubeletAnswers returns an error unless the kubelet of a node accepts connections there.
func kubeletAnswers(ctx context.Context, node string) error {
	return connects(ctx, node, rig.Lab.Network().Node(slices.Index(rig.Lab.Nodes(), node)+1), kubeletPort)
}
