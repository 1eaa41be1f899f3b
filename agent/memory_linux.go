package agent

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseUnused gives back what is needed now and then only: the heap of an inspection, and the pages of our own binary that
// package initialisation and the start touched. Those are most of a young agent's resident set (27 of 36 MiB, of which 8 are
// not needed again); what is needed again is mapped again from the page cache.
func releaseUnused() {
	debug.FreeOSMemory()
	for _, m := range ownPages() {
		// It can only fail for an address that is none of ours, and then nothing is released.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

type mapping struct{ start, end uintptr }

// ownPages are the mappings of the executable that cannot have been changed: read-only, and without a page that
// differs from the file. If the kernel does not report that, the result is empty.
func ownPages() []mapping {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	var found []mapping
	var candidate *mapping
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		var m mapping
		var permissions string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &m.start, &m.end, &permissions); n == 3 {
			candidate = nil
			if strings.HasSuffix(line, path) && !strings.Contains(permissions, "w") {
				candidate = &m
			}
			continue
		}
		if pages, ok := strings.CutPrefix(line, "Anonymous:"); ok && candidate != nil && strings.TrimSpace(pages) == "0 kB" {
			found = append(found, *candidate)
		}
	}
	return found
}
