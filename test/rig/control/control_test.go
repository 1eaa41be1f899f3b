package control

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestOrdersOverLongSocketPath: orders are accepted over a socket with a path of any length.
func TestOrdersOverLongSocketPath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"short", strings.Repeat("x", 200)} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(dir, "control.sock")
		ctx, cancel := context.WithCancel(t.Context())
		var serving errgroup.Group
		serving.Go(func() error {
			return Serve(ctx, socket, map[string]Handler{"echo": func(_ context.Context, args []string) (string, error) {
				return strings.Join(args, " "), nil
			}})
		})
		for poll, late := time.Tick(10*time.Millisecond), time.After(time.Minute); ; {
			got, err := Call(t.Context(), socket, "echo", "a", "b")
			if err == nil && got != "a b" {
				t.Errorf("got %q, want what was said", got)
			}
			if err == nil {
				break
			}
			select {
			case <-poll:
				continue
			case <-late:
				t.Fatalf("nothing takes orders at a path of %d bytes: %v", len(socket), err)
			}
		}
		cancel()
		if err := serving.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	}
}
