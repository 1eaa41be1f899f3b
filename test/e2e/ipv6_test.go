package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestStoriesOnIPv6 runs stories again on a second rig, whose nodes, Pods and Services have addresses of IPv6 alone. Members heal, the quorum
// is recovered from one disk, and clusters are restored from the backups.
func TestStoriesOnIPv6(t *testing.T) {
	stories.Begin(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	again := []string{"TestMemberHealsWhenItsDataIsLost", "TestQuorumIsRecoveredFromOneDiskOfThree", "TestAllVolumesLostFormFromBackups"}
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^("+strings.Join(again, "|")+")$", "-agents", *agents)
	cmd.Env = append(os.Environ(), harness.OwnRigOfIPv6()...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Run(); err != nil {
		t.Errorf("run stories on a Kubernetes cluster of IPv6: %v", err)
	}
}
