package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
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
