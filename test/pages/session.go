package pages

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Session is a bash that runs the commands of a page one after the other, so that a variable of one is there for the next.
type Session struct {
	dir string
	env []string

	bash *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// endOfCommand begins the line that the shell prints after each command. The exit code follows.
const endOfCommand = "--- end of command:"

// NewSession starts a bash in a directory. It ends with the context. The caller calls Close.
func NewSession(ctx context.Context, dir string, env []string) (*Session, error) {
	s := &Session{dir: dir, env: env}
	s.bash = s.command(ctx)
	s.bash.Args = append(s.bash.Args, "--noprofile", "--norc", "-o", "pipefail")
	in, inErr := s.bash.StdinPipe()
	out, outErr := s.bash.StdoutPipe()
	if err := errors.Join(inErr, outErr, s.bash.Start()); err != nil {
		return nil, fmt.Errorf("start bash: %w", err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s, nil
}

// command is a bash in a process group of its own, so that its end is the end of the programs that it started.
func (s *Session) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// Run runs a command and returns the lines that it printed to its output and its error output. After the deadline the
// session ends.
func (s *Session) Run(command string, within time.Duration) (printed []string, err error) {
	deadline := time.AfterFunc(within, func() { _ = s.bash.Cancel() })
	defer deadline.Stop()
	// The brace is on a line of its own, because a command can end in a comment.
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null 2>&1; printf '\\n%s %%d\\n' $?\n", command, endOfCommand); err != nil {
		return nil, fmt.Errorf("run %s: %w", command, err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return printed, fmt.Errorf("run %s: bash ended, or the command took more than %s: %w", command, within, err)
		}
		line = strings.TrimSuffix(line, "\n")
		code, ended := strings.CutPrefix(line, endOfCommand+" ")
		if !ended {
			printed = append(printed, line)
			continue
		}
		// printf begins with a newline, which ends a last line without one, and else adds an empty line.
		if n := len(printed); n > 0 && printed[n-1] == "" {
			printed = printed[:n-1]
		}
		if exit, err := strconv.Atoi(code); err != nil || exit != 0 {
			return printed, fmt.Errorf("run %s: exit code %s: %s", command, code, strings.Join(printed, "\n"))
		}
		return printed, nil
	}
}

// Close ends the shell.
func (s *Session) Close() {
	_ = s.in.Close()
	_ = s.bash.Wait() // the exit code is that of the last command
}

// Watch runs a command that does not end on its own, until what it printed is enough. It sees no variables of the session.
func (s *Session) Watch(ctx context.Context, command string, within time.Duration, enough func(printed []string) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := s.command(ctx, "-c", command)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", command, err)
	}
	missing := errors.New("nothing was printed")
	var printed []string
	for lines := bufio.NewScanner(out); missing != nil && lines.Scan(); {
		printed = append(printed, lines.Text())
		missing = enough(printed)
	}
	cancel()
	_ = cmd.Wait() // the signal that ends it is its result
	if missing != nil {
		return fmt.Errorf("watch %s: not within %s: %w", command, within, missing)
	}
	return nil
}
