package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// childMode makes the test binary behave as a process that does not end at its first signal.
const childMode = "CLI_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) == "" {
		os.Exit(m.Run())
	}
	log, _ := NewLogger(os.Stderr)
	os.Exit(Main(context.Background(), &cobra.Command{Use: "child", RunE: func(cmd *cobra.Command, _ []string) error {
		os.Stdout.WriteString("started\n")
		<-cmd.Context().Done()
		os.Stdout.WriteString("draining\n")
		if os.Getenv(childMode) == "stuck" {
			select {}
		}
		return cmd.Context().Err()
	}, Args: cobra.ArbitraryArgs}, log))
}

func TestMainReportsHowTheCommandEnded(t *testing.T) {
	tests := map[string]struct {
		err  error
		code int
		logs string
	}{
		"success is exit code 0 and no log line":     {nil, 0, ""},
		"an error is exit code 1 and one log line":   {errors.New("listen :8081: in use"), 1, "listen :8081: in use"},
		"an error may have a code of its own":        {fmt.Errorf("plan: %w", WithCode(2, errors.New("a gap"))), 2, "plan: a gap"},
		"a code of no error is success":              {WithCode(2, nil), 0, ""},
		"a cancel that no one asked for is an error": {context.Canceled, 1, "context canceled"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := Service(&cobra.Command{Use: "druid", RunE: func(*cobra.Command, []string) error { return test.err }})
			root.SetArgs(nil)
			if code := Main(t.Context(), root, slog.New(slog.NewJSONHandler(&out, nil))); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if test.logs == "" {
				if out.Len() != 0 {
					t.Errorf("logged %q, want nothing", out.String())
				}
				return
			}
			var line struct{ Msg, Err string }
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatalf("log %q is not one JSON line: %v", out.String(), err)
			}
			if line.Err != test.logs {
				t.Errorf("logged err %q, want %q", line.Err, test.logs)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	tests := map[string]struct {
		mode    string
		signals int
		clean   bool
	}{
		"the first SIGTERM drains":            {"drains", 1, true},
		"the second SIGTERM kills what hangs": {"stuck", 2, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childMode+"="+test.mode)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 64)
			for range test.signals {
				if _, err := stdout.Read(said); err != nil {
					t.Fatalf("the child ended before its signal: %v", err)
				}
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			err = cmd.Wait()
			if clean := err == nil; clean != test.clean {
				t.Errorf("ended with %v, want a clean end: %t", err, test.clean)
			}
			if !test.clean && !strings.Contains(err.Error(), "terminated") {
				t.Errorf("ended with %v, want the signal's default action", err)
			}
		})
	}
}

func TestParseLevel(t *testing.T) {
	tests := map[string]struct {
		text string
		want slog.Level
		bad  bool
	}{
		"debug":                 {text: "debug", want: slog.LevelDebug},
		"error":                 {text: "error", want: slog.LevelError},
		"an offset is no level": {text: "info+2", bad: true},
		"nothing is no level":   {text: "", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseLevel(test.text)
			if (err != nil) != test.bad || got != test.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
