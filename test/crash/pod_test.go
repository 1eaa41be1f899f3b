package crash_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/test/alone"
	"github.com/etcd-druid/druid/test/env"
)

// pod is one member without a kubelet: a real launch with a real etcd, and an agent in a process of its own.
type pod struct {
	c    *cluster
	name string
	// certificate of its agents, a file.
	certificate string
	config      config.Config
	// backups is the directory that the agent backs up to, empty for none.
	backups string

	launch, agent *process

	mu  sync.Mutex
	log bytes.Buffer
}

// process that a test started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *pod) run(cmd *exec.Cmd) *process {
	p.c.t.Helper()
	cmd.Stdout, cmd.Stderr = p, p
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.c.t.Fatal(err)
	}
	started := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(started.done)
		started.err = cmd.Wait()
	}()
	return started
}

// end kills the process, where it runs, and waits for its end.
func (p *process) end(with syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(with)
	<-p.done
}

// ended says whether it is known to have ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *pod) startLaunch() {
	p.c.t.Helper()
	p.launch = p.run(exec.Command(env.Program(p.c.t, "./cmd/launch"), "--socket", p.config.SocketPath, "--volume", p.config.VolumePath, "--probe", ""))
}

// startAgent runs an agent that is to end at a point, or one that is not.
func (p *pod) startAgent(point string) {
	p.c.t.Helper()
	cmd := exec.Command(env.Program(p.c.t, alone.Program), p.certificate)
	cmd.Env = append(os.Environ(), crash.Variable+"="+point)
	p.note("--- agent of %s, to end at %q", p.name, point)
	p.agent = p.run(cmd)
}

// endsAtItsPoint waits until the agent was ended by the point that it was started with.
func (p *pod) endsAtItsPoint(meanwhile func()) {
	p.c.t.Helper()
	p.c.eventually("the agent passes its point", func() error {
		if p.agent.ended() {
			return nil
		}
		meanwhile()
		return errors.New("it runs on")
	})
	if exit, ok := errors.AsType[*exec.ExitError](p.agent.err); !ok || exit.ExitCode() != crash.ExitCode {
		p.c.t.Fatalf("the agent ended with %v, want code %d", p.agent.err, crash.ExitCode)
	}
}

// hasLaunch says whether launch is on the agent's line.
func (p *pod) hasLaunch() error {
	url := transport.URL(false, p.config.ListenHost, p.config.AgentPort) + "/v1/status"
	request, err := http.NewRequestWithContext(p.c.t.Context(), http.MethodGet, url, nil)
	p.c.must(err)
	response, err := transport.Transport{}.HTTPClient().Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var status agent.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil || !status.Launch.Connected {
		return fmt.Errorf("the agent says %+v: %w", status.Launch, err)
	}
	return nil
}

// killAgent is kill -9 of the agent; etcd runs on.
func (p *pod) killAgent() {
	p.agent.end(syscall.SIGKILL)
}

// powerOff ends all three processes as a power cut does: etcd dies with launch.
func (p *pod) powerOff() {
	p.killAgent()
	p.launch.end(syscall.SIGKILL)
}

// certify writes what the agents that are started from now on are reported.
func (p *pod) certify() {
	p.c.t.Helper()
	rest := p.c.rest
	p.c.must(alone.Certificate{
		Config: p.config, Addresses: p.c.addresses, Server: rest.Host, User: p.c.agentUser(),
		CA: rest.CAData, Cert: rest.CertData, Key: rest.KeyData,
	}.Write(p.certificate))
}

// strays are what is on the volume and belongs to no member that runs well.
func (p *pod) strays() (found []string) {
	entries, err := os.ReadDir(p.config.VolumePath)
	p.c.must(err)
	for _, e := range entries {
		kept := slices.ContainsFunc([]string{datadir.ReasonSurvivor, datadir.ReasonSuperseded, datadir.ReasonDiffers}, func(reason string) bool {
			return strings.HasSuffix(e.Name(), "-"+reason) // for a week
		})
		if !kept && !slices.Contains([]string{"data", "druid.json", "druid.lock"}, e.Name()) {
			found = append(found, e.Name())
		}
	}
	return found
}

// Write collects the logs of all processes.
func (p *pod) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *pod) note(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// tail of the logs: what a test that failed shows. etcd's own lines are reported apart by their level's spelling.
func (p *pod) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var own []byte
	for line := range bytes.Lines(p.log.Bytes()) {
		if !bytes.HasPrefix(line, []byte(`{"level":"info"`)) {
			own = append(own, line...)
		}
	}
	return string(own[max(0, len(own)-6000):])
}

// newPod makes a volume and what an agent is reported, and starts launch.
func (c *cluster) newPod(name string) *pod {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "crash")
	c.must(err)
	p := &pod{c: c, name: name, certificate: filepath.Join(dir, "agent.json")}
	cfg := config.Default()
	cfg.Namespace, cfg.Cluster, cfg.ClusterUID, cfg.Member, cfg.PodUID = c.namespace, clusterName, clusterUID, name, "pod-"+name
	cfg.PeerService, cfg.EtcdVersion, cfg.EtcdPath, cfg.ListenHost = "demo-peer", c.programs.version, c.programs.etcd, c.addresses[name]
	cfg.VolumePath, cfg.SocketPath, cfg.ConfigPath = filepath.Join(dir, "volume"), filepath.Join(dir, "s"), filepath.Join(dir, "config.yaml")
	p.config = cfg
	content, err := quick().YAML()
	c.must(err)
	c.must(os.WriteFile(cfg.ConfigPath, content, 0o600))
	c.must(os.Mkdir(cfg.VolumePath, 0o700))
	p.certify()
	c.pods[name] = p
	c.t.Cleanup(func() {
		p.powerOff()
		if c.t.Failed() {
			c.t.Logf("%s, strays %v:\n%s", name, p.strays(), p.tail())
		}
		_ = os.RemoveAll(dir)
	})
	p.startLaunch()
	return p
}
