package cli

import (
	"context"
	"errors"
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

// Main runs root until it returns or until the first SIGINT or SIGTERM, which ends the command's context so that it can
// drain. A second signal kills the process at once. It returns the process's exit code, and logs the error that ended it:
// nobody above it can.
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
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitOK
	}
	log.ErrorContext(ctx, "command ended", "command", root.Name(), "err", err)
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	return exitError
}
