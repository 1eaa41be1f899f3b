package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/spf13/cobra"
)

// A person reads what a verb says; a program reads what a service logs.
func TestAVerbSaysItsErrorAsASentence(t *testing.T) {
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
