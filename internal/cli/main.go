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

func (e *codedError) Error() string { return e.err.Error() }

func (e *codedError) Unwrap() error { return e.err }

// WithCode makes a process that ends with err return code. A nil error stays one.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// service marks a command whose errors belong in the log.
const service = "etcd.druid.dev/service"

// Service marks a command that runs until it is stopped: it logs the error that ends it as it logs all else. Any other command is
// a verb, whose error is a sentence for the person who called it.
func Service(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[service] = "true"
	return cmd
}

// Main runs root until it returns or until the first SIGINT or SIGTERM, which ends the command's context so that it can
// drain. A second signal kills the process at once. It returns the process's exit code, and reports the error that
// ended it, as nothing above it can.
func Main(ctx context.Context, root *cobra.Command, log *slog.Logger) int {
	signals, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The signals have their default action again before anybody learns of the first one: the second one ends the process.
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
	if called.Annotations[service] != "" {
		log.ErrorContext(ctx, "command ended", "command", called.CommandPath(), "err", err)
	} else {
		_, _ = fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", called.CommandPath(), err) // there is nowhere else to say it
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	return exitError
}

// NewLogger returns a logger that writes JSON lines to w, and the level that decides what it writes: info until it is
// set to something else, at any time. What client-go logs goes to the same place in the same form.
func NewLogger(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	log := slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log.With("logger", "client-go"))
	return log, level
}

// ParseLevel reads a log level. Anything but debug, info, warn and error is refused: slog itself would also take offsets
// like info+2, that no configuration should hold.
func ParseLevel(text string) (slog.Level, error) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	level, ok := levels[text]
	if !ok {
		return 0, fmt.Errorf("log level %q is none of debug, info, warn, error", text)
	}
	return level, nil
}

// version is set by the linker: -ldflags "-X github.com/etcd-druid/druid/internal/cli.version=v1.2.3".
var version string

// Version is what the linker was reported, else what the Go toolchain knows: the module's version, or the commit that the
// binary was built from.
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

// VersionCommand is the command `version` of a program.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), Version())
			return err
		},
	}
}
