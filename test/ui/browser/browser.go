package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"
)

// programs are the names of Chromium, the smallest first.
var programs = []string{"chromium-headless-shell", "chromium", "google-chrome"}

// Browser is a Chromium that runs. Each test has a tab of its own.
type Browser struct{ ctx context.Context }

// Start runs Chromium. stop ends it, and waits for its end.
func Start(ctx context.Context) (b Browser, stop func(), err error) {
	path := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return b, nil, fmt.Errorf("none of %s is installed: run make setup", strings.Join(programs, ", "))
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, wait := chromedp.NewExecAllocator(ctx, options...)
	started, end := chromedp.NewContext(allocator)
	stop = func() {
		end()
		wait()
	}
	if err := chromedp.Do(started); err != nil {
		stop()
		return b, nil, fmt.Errorf("start %s: %w", path, err)
	}
	return Browser{started}, stop, nil
}
