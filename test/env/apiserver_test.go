package env

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// killedVariable makes TestNoServerOutlivesItsTest the test that is killed.
const killedVariable = "DRUID_TEST_SERVES_UNTIL_KILLED"

// A test that is killed, as by a timeout, cleans nothing up. Its servers end with it.
func TestNoServerOutlivesItsTest(t *testing.T) {
	if os.Getenv(killedVariable) != "" {
		fmt.Println("serves at", strings.Trim(strings.TrimPrefix(OwnAPIServer(t).Host, "https:"), "/"))
		select {}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killed := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
	killed.Env, killed.SysProcAttr = append(os.Environ(), killedVariable+"=1"), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := killed.StdoutPipe()
	if err == nil {
		err = killed.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var host string
	for lines := bufio.NewScanner(output); host == "" && lines.Scan(); {
		_, host, _ = strings.Cut(lines.Text(), "serves at ")
	}
	if err := killed.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = killed.Wait() // it was killed
	if host == "" {
		t.Fatal("the test that is killed started no server")
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		connection, err := net.Dial("tcp", host)
		if err == nil {
			err = connection.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED), nil
	})
	if err != nil {
		t.Errorf("the API server at %s outlives its test: %v", host, err)
	}
}
