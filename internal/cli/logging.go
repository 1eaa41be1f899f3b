package cli

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

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
