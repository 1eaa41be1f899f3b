package druid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/test/env"
)

// process is a druid in a process of its own.
type process struct {
	s    *stage
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu  sync.Mutex
	log bytes.Buffer
}

// Write collects the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// kubeconfig is a file by which a process reaches the API server with druid's rights.
func (s *stage) kubeconfig() string {
	s.Helper()
	return s.kubeconfigOf(druidUser, serviceAccounts...)
}

// kubeconfigOf is a file by which a process reaches the API server as a user, or as the administrator if that is empty.
func (s *stage) kubeconfigOf(user string, groups ...string) string {
	s.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthorityData: s.config.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: s.config.CertData, ClientKeyData: s.config.KeyData,
		Impersonate: user, ImpersonateGroups: groups,
	}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	path := filepath.Join(s.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		s.Fatal(err)
	}
	return path
}

// startProcess runs a druid that is to end at a point, or one that is not.
func (s *stage) startProcess(point string, namespaces ...string) *process {
	s.Helper()
	cmd := exec.Command(env.Program(s, "./cmd/druid"), "--agent-image", agentImage, "--namespaces", strings.Join(namespaces, ","),
		"--leader-elect=false", "--health-address=0", "--metrics-address=0", "--not-ready-grace-period=10s",
		"--agent-renew-interval=1s") // druid believes an acknowledgement after two of these
	cmd.Env = append(os.Environ(), crash.Variable+"="+point, "KUBECONFIG="+s.kubeconfig())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{s: s, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	s.Cleanup(func() {
		p.kill()
		if s.Failed() {
			s.Logf("druid, to end at %q:\n%s", point, p.log.Bytes()[max(0, p.log.Len()-4000):])
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// endsAtItsPoint waits until the point that it was started with ended it.
func (p *process) endsAtItsPoint(meanwhile func()) {
	p.s.Helper()
	p.s.within("druid passes its point", meanwhile, func() error {
		select {
		case <-p.done:
			return nil
		default:
			return errors.New("it runs on")
		}
	})
	if exit, ok := errors.AsType[*exec.ExitError](p.err); !ok || exit.ExitCode() != crash.ExitCode {
		p.s.Fatalf("druid ended with %v, want code %d", p.err, crash.ExitCode)
	}
}

// crashTimeout of a test that starts processes on a busy machine.
const crashTimeout = 4 * time.Minute

// within polls until check finds nothing wrong, and lets the rest of the world go on meanwhile, once a second.
func (s *stage) within(what string, meanwhile func(), check func() error) {
	s.Helper()
	deadline := time.NewTimer(crashTimeout)
	defer deadline.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			s.Fatal(fmt.Errorf("%s: %w", what, err))
		case <-second.C:
			meanwhile()
		case <-time.After(200 * time.Millisecond): // a look at all objects costs the API server a dozen lists
		}
	}
}
