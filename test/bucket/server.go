package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// Credentials of the server's administrator, and its region.
const (
	AccessKey = "admin"
	SecretKey = "admin-secret"
	Region    = "us-east-1"
)

// startTimeout of versitygw, which needs half a second on an idle machine.
const startTimeout = 2 * time.Minute

// Server is a running versitygw.
type Server struct {
	// Endpoint is its URL, without TLS.
	Endpoint string
	binary   string
	dir      string
	cmd      *exec.Cmd
	log      *bytes.Buffer
	release  func() // gives the port back
	exited   errgroup.Group
	ended    chan struct{}
}

// shared is the server of a test binary whose TestMain is Main.
var shared struct {
	sync.Mutex
	active bool
	server *Server
}

// Main runs a package's tests with one server for all of them, started by the first that asks, and returns the exit code.
func Main(m *testing.M) int {
	shared.active = true
	code := m.Run()
	if shared.server != nil {
		shared.server.stop()
	}
	return code
}

// Start returns a server with versioning at hand. Under Main it is shared, else it ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		return shared.server
	}
	s, err := start(tb)
	if err != nil {
		tb.Fatalf("start an S3 server: %v", err)
	}
	if shared.active {
		shared.server = s
	} else {
		tb.Cleanup(s.stop)
	}
	return s
}

func start(tb testing.TB) (*Server, error) {
	tb.Helper()
	built, err := binaries.Programs(tb.Context(), tb.Logf, "versitygw")
	if err != nil {
		return nil, err
	}
	return run(tb.Context(), built["versitygw"])
}

func run(ctx context.Context, binary string) (*Server, error) {
	dir, err := os.MkdirTemp("", "versitygw-")
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"data", "iam", "versions"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	port, release, err := machine.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s := &Server{
		Endpoint: "http://" + address, binary: binary, dir: dir, log: &bytes.Buffer{}, release: release, ended: make(chan struct{}),
	}
	s.cmd = exec.Command(binary, "--port", address, "--iam-dir", filepath.Join(dir, "iam"), "--health", "/healthz", "--region", Region,
		"--keep-alive", "--quiet", "posix", "--versioning-dir", filepath.Join(dir, "versions"), filepath.Join(dir, "data"))
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	// A test binary that is killed must leave no server behind.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		release()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.exited.Go(func() error {
		defer close(s.ended)
		return s.cmd.Wait()
	})
	if err := s.ready(); err != nil {
		s.stop()
		return nil, fmt.Errorf("%w\n%s", err, s.log)
	}
	return s, nil
}

func (s *Server) ready() error {
	for deadline := time.Now().Add(startTimeout); ; {
		answer, err := http.Get(s.Endpoint + "/healthz")
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return fmt.Errorf("versitygw ended: %w", s.exited.Wait())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("versitygw was not ready after %s: %w", startTimeout, err)
		}
	}
}

func (s *Server) stop() {
	// It ended already where that fails.
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.release()
	_ = os.RemoveAll(s.dir)
}

// User makes a user who owns no bucket and may therefore use none.
func (s *Server) User(tb testing.TB, access, secret string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.binary, "admin", "--access", AccessKey, "--secret", SecretKey, "--region", Region,
		"--endpoint-url", s.Endpoint, "create-user", "--access", access, "--secret", secret, "--role", "user").CombinedOutput()
	if err != nil {
		tb.Fatalf("make user %s: %v\n%s", access, err, strings.TrimSpace(string(out)))
	}
}
