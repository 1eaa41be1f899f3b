package leases_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/leases"
)

// A process that is stopped (SIGSTOP) still believes that it leads. When it continues, it must notice the loss and
// write nothing.
func TestFrozenLeaderFindsThatItIsNotAnyMore(t *testing.T) {
	t.Parallel()
	s := leaderServer(t)
	frozen := s.process("demo-a")
	if said := frozen.next(); said != "leads" {
		t.Fatalf("the process says %q, want that it leads", said)
	}
	frozen.signal(syscall.SIGSTOP)
	b := s.campaign(s.agent, "demo-b", func() {})
	s.soon("demo-b leads", b.began)
	frozen.signal(syscall.SIGCONT)
	if said := frozen.next(); said != "ended: "+leases.ErrNotLeader.Error() {
		t.Errorf("the process says %q, want that it is no longer the leader", said)
	}
	s.still("demo-b", b.ended)
	if n := *s.get("demo-leader").Spec.LeaseTransitions; n != 2 {
		t.Errorf("%d transitions, want 2", n)
	}
	b.stop()
	if said := frozen.next(); said != "leads" {
		t.Errorf("the process says %q, want that it leads again", said)
	}
}

// candidateVariable makes a test binary a candidate, and says how to reach the server.
const candidateVariable = "DRUID_TEST_CANDIDATE"

type candidacy struct {
	Name, Namespace, Host, User string
	CA, Certificate, Key        []byte
}

// process is a candidate in its own process.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func (s *server) process(name string) *process {
	s.t.Helper()
	c := s.agent
	raw, err := json.Marshal(candidacy{
		Name: name, Namespace: s.namespace, Host: c.Host, User: c.Impersonate.UserName, CA: c.CAData, Certificate: c.CertData, Key: c.KeyData,
	})
	self, err2 := os.Executable()
	if err := errors.Join(err, err2); err != nil {
		s.t.Fatal(err)
	}
	p := &process{t: s.t, cmd: exec.CommandContext(context.WithoutCancel(s.t.Context()), self), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), candidateVariable+"="+string(raw))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- strings.TrimSpace(lines.Text())
		}
	}()
	s.t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		<-read
		if err := p.cmd.Wait(); err != nil {
			s.t.Errorf("candidate %s: %v", name, err)
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

func (p *process) next() string {
	p.t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(maxWait):
		p.t.Fatalf("the candidate says nothing for %s", maxWait)
		return ""
	}
}

// campaignAs is the main function of the process. It prints each start and end of a term.
func campaignAs(raw string) error {
	var c candidacy
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := leases.NewClient(&rest.Config{
		Host: c.Host, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA, CertData: c.Certificate, KeyData: c.Key},
		Impersonate: rest.ImpersonationConfig{UserName: c.User, Groups: []string{"system:authenticated"}},
	}, c.Namespace)
	if err != nil {
		return err
	}
	return leases.NewElection(leases.NewStore(client, "demo"), c.Name, discard()).WithTimes(shortTerm).Run(ctx, func(ctx context.Context) {
		fmt.Fprintln(os.Stdout, "leads")
		<-ctx.Done()
		fmt.Fprintln(os.Stdout, "ended:", context.Cause(ctx))
	})
}
