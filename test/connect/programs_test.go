package connect

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/member"
	"github.com/etcd-druid/druid/test/pages"
)

// compiled compiles the program in a page with the client of etcd that this repository uses, and returns its path.
func compiled(t *testing.T, page string) string {
	t.Helper()
	dir := files(t, map[string][]byte{"main.go": []byte(blockWith(t, page, pages.Go, "package main") + "\n")})
	path, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, path).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", page, err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: gofmt -l: %v\n%s", page, err, out)
	}
	return program
}

// The program watches through a lost quorum. It is halted while the members restart and history is compacted.
func TestTheProgramThatWatchesListsAgain(t *testing.T) {
	members := member.StartCluster(t, "3.6", 3)
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}
	p := &printing{t: t}
	cmd := exec.CommandContext(t.Context(), compiled(t, "how-to/run/write-a-client.md"), strings.Join(endpoints, ","))
	cmd.Stdout, cmd.Stderr = p, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	signal := func(s syscall.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	put := func(key string) (revision int64) {
		p.eventually("put "+key, func() error {
			response, err := members[0].Client.Put(t.Context(), key, "v")
			if err == nil {
				revision = response.Header.Revision
			}
			return err
		})
		return revision
	}

	p.prints("listed 0 keys")
	put("/app/a")
	p.prints("PUT /app/a")
	for _, m := range members[1:] {
		m.Stop(t)
	}
	p.prints("list again: etcdserver: no leader")
	for _, m := range members[1:] {
		m.Restart(t)
	}
	p.prints("listed 1 keys")

	signal(syscall.SIGSTOP)
	for _, m := range members {
		m.Stop(t)
		m.Restart(t)
		put("/app/b")
	}
	if _, err := members[0].Client.Compact(t.Context(), put("/app/c")); err != nil {
		t.Fatal(err)
	}
	signal(syscall.SIGCONT)
	p.prints("list again: etcdserver: mvcc: required revision has been compacted")
	p.prints("listed 3 keys")
}

// printing is what a program prints, line by line.
type printing struct {
	member.Buffer
	t *testing.T
	// seen is how many bytes of it a test has waited for.
	seen int
}

// prints waits until the program prints a line after those that a test has waited for.
func (p *printing) prints(line string) {
	p.t.Helper()
	p.eventually("the program prints "+line, func() error {
		text := p.String()
		at := strings.Index(text[p.seen:], line+"\n")
		if at < 0 {
			return fmt.Errorf("it printed %q", text[p.seen:])
		}
		p.seen += at + len(line) + 1
		return nil
	})
}

func (p *printing) eventually(what string, is func() error) {
	p.t.Helper()
	deadline := time.After(2 * time.Minute)
	for poll := time.Tick(50 * time.Millisecond); ; {
		err := is()
		if err == nil {
			return
		}
		select {
		case <-poll:
		case <-deadline:
			p.t.Fatalf("%s: %v", what, err)
		}
	}
}
