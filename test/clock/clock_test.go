package clock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// asked makes the test program answer each line with its wall clock, and with the time since it began.
const asked = "CLOCK_TEST_ANSWERS"

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" {
		os.Exit(m.Run())
	}
	begun, lines := time.Now(), bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		now := time.Now()
		fmt.Println(now.UnixNano(), int64(now.Sub(begun)))
	}
}

// tolerance is much less than a step, and more than a busy machine delays an answer.
const tolerance = time.Minute

func TestOnlyTheWallClockOfTheProcessSteps(t *testing.T) {
	t.Parallel()
	p := start(t)
	wall, before := p.ask(t)
	near(t, "the wall clock before the first step", time.Until(wall), 0)
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		if err := Step(t.Context(), p.pid, by); err != nil {
			t.Fatal(err)
		}
		wall, monotonic := p.ask(t)
		near(t, fmt.Sprintf("the wall clock after a step of %s", by), time.Until(wall), by)
		near(t, fmt.Sprintf("what a step of %s adds to the monotonic clock", by), monotonic-before, 0)
		if monotonic < before {
			t.Errorf("the monotonic clock went back by %s", before-monotonic)
		}
	}
	if err := Step(t.Context(), p.pid, time.Millisecond); err == nil {
		t.Error("a step by a part of a second is no error")
	}
	p.end(t)
	if err := Step(t.Context(), p.pid, time.Hour); err == nil {
		t.Error("a step of a process that has ended is no error")
	}
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if (got - want).Abs() > tolerance {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

// process answers with its clocks.
type process struct {
	pid    int
	stdin  io.WriteCloser
	answer *bufio.Scanner
	wait   func() error
}

func start(t *testing.T) *process {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), asked+"=1")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{pid: command.Process.Pid, stdin: stdin, answer: bufio.NewScanner(stdout), wait: command.Wait}
}

func (p *process) ask(t *testing.T) (wall time.Time, monotonic time.Duration) {
	t.Helper()
	if _, err := fmt.Fprintln(p.stdin); err != nil {
		t.Fatal(err)
	}
	if !p.answer.Scan() {
		t.Fatalf("it does not answer: %v", p.answer.Err())
	}
	words := strings.Fields(p.answer.Text())
	var numbers [2]int64
	for i := range numbers {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers[i] = n
	}
	return time.Unix(0, numbers[0]), time.Duration(numbers[1])
}

func (p *process) end(t *testing.T) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := p.wait(); err != nil {
		t.Error(err)
	}
}
