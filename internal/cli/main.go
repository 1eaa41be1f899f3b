package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// The exit codes of a process.
const (
	exitOK    = 0
	exitError = 1
)

// codedError has an exit code of its own.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

// WithCode gives a process that ends with err the exit code. It returns nil for a nil error.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// Exit ends a process with the exit code. Main prints nothing about it: the command has printed what there is to say.
func Exit(code int) error { return &codedError{code: code} }

// service marks a command whose errors are logged.
const service = "etcd.druid.dev/service"

// Service marks a command that runs until it is stopped: it logs the error that ends it. Any other command prints its
// error for the user.
func Service(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[service] = "true"
	return cmd
}

// Main runs root until it returns or until the first SIGINT or SIGTERM, which ends the context of the command so that
// it can shut down. A second signal ends the process immediately. Main returns the exit code of the process and
// reports the error that ended it.
func Main(ctx context.Context, root *cobra.Command, log *slog.Logger) int {
	signals, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Restore the default action of the signals before the command sees the first one, so that the second one ends the
	// process.
	context.AfterFunc(signals, func() {
		stop()
		cancel()
	})

	root.SilenceErrors, root.SilenceUsage = true, true
	called, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitOK
	}
	coded, hasCode := errors.AsType[*codedError](err)
	if hasCode && coded.err == nil {
		return coded.code
	}
	if called.Annotations[service] != "" {
		log.ErrorContext(ctx, "command ended", "command", called.CommandPath(), "err", err)
	} else {
		_, _ = fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", called.CommandPath(), err) // there is nowhere else to say it
	}
	if hasCode {
		return coded.code
	}
	return exitError
}

// NewLogger returns a logger that writes JSON lines to w, and its level, which can be changed at any time and starts
// at info. Logs of client-go go to the same logger.
func NewLogger(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	log := slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log.With("logger", "client-go"))
	return log, level
}

// ParseLevel parses a log level. It accepts only debug, info, warn and error; slog itself also accepts offsets such as
// info+2.
func ParseLevel(text string) (slog.Level, error) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	level, ok := levels[text]
	if !ok {
		return 0, fmt.Errorf("invalid log level %q: want debug, info, warn or error", text)
	}
	return level, nil
}

// version is set by the linker: -ldflags "-X github.com/etcd-druid/druid/internal/cli.version=v1.2.3".
var version string

// Version returns the version that the linker set, or else what the Go toolchain knows: the version of the module, or
// the commit from which the binary was built.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}

// VersionCommand returns the command `version` of a program, with an example of its use.
func VersionCommand(example string) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), Version())
			return err
		},
	}
}
