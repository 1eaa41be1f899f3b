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
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/test/sources"
)

// childMode makes the test binary a process that does not end at its first signal.
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
		"success is exit code 0 and no log line":   {nil, 0, ""},
		"an error is exit code 1 and one log line": {errors.New("listen :8081: in use"), 1, "listen :8081: in use"},
		"an error may have a code of its own":      {fmt.Errorf("plan: %w", WithCode(2, errors.New("a gap"))), 2, "plan: a gap"},
		"an exit has a code and no log line":       {fmt.Errorf("status: %w", Exit(2)), 2, ""},
		"a code of no error is success":            {WithCode(2, nil), 0, ""},
		"a cancel without a request is an error":   {context.Canceled, 1, "context canceled"},
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

// A user reads the error of a verb; a program reads the log of a service.
func TestAVerbReportsItsErrorAsASentence(t *testing.T) {
	var out, logged bytes.Buffer
	root, backup := &cobra.Command{Use: "agent"}, &cobra.Command{Use: "backup"}
	backup.AddCommand(&cobra.Command{Use: "check", RunE: func(*cobra.Command, []string) error { return WithCode(2, errors.New("1 of 3 objects broken")) }})
	root.AddCommand(backup)
	root.SetErr(&out)
	root.SetArgs([]string{"backup", "check"})
	if code := Main(t.Context(), root, slog.New(slog.NewJSONHandler(&logged, nil))); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	if want := "agent backup check: 1 of 3 objects broken\n"; out.String() != want || logged.Len() != 0 {
		t.Errorf("said %q and logged %q, want %q alone", out.String(), logged.String(), want)
	}
}

// linkerFlag is how a build sets the version of the programs.
const linkerFlag = "-X github.com/etcd-druid/druid/internal/cli.version="

// TestProgramsPrintBuildVersion: programs print the version that their build set.
func TestProgramsPrintBuildVersion(t *testing.T) {
	for _, program := range []string{"druid", "agent"} {
		t.Run(program, func(t *testing.T) {
			if err := sources.Reads(t.Context(), "../..", "./cmd/"+program); err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(t.TempDir(), program)
			build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w "+linkerFlag+"v1.2.3", "-o", binary, "../../cmd/"+program)
			// Use the flags of all other builds, so that the build cache is used.
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build %s: %v\n%s", program, err, out)
			}
			out, err := exec.CommandContext(t.Context(), binary, "version").Output()
			if err != nil || string(out) != "v1.2.3\n" {
				t.Errorf("got %q, %v; want v1.2.3", out, err)
			}
		})
	}
}

// The linker silently ignores a flag for a variable that does not exist.
func TestBuildsSetTheVersionThatThereIs(t *testing.T) {
	for _, file := range []string{"Dockerfile", "test/rig/images/images.go"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), linkerFlag) {
			t.Errorf("%s does not build with %s…", file, linkerFlag)
		}
	}
}
