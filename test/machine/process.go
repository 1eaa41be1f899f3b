package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU returns the CPU time, of user and system, that this process has used.
func CPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it fails for bad arguments alone
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Number returns the number after "field:" in a file of the kernel, as /proc/self/status. Its unit is that of the file.
func Number(file, field string) (int64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, fmt.Errorf("read %s: it has no %s", file, field)
}

// Anonymous returns the bytes of memory of this process that no file has. The kernel drops the others when it needs memory, such as the
// pages of a database.
func Anonymous() (int64, error) {
	kib, err := Number("/proc/self/status", "RssAnon")
	return kib << 10, err
}
