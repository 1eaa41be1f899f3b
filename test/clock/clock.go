package clock

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// symbol is the function of the vDSO that the Go runtime calls for the time of day.
	symbol = "__vdso_clock_gettime"
	// tries is how often a process is stopped until none of its threads is in the vDSO. Each is there for about 50 ns at a time.
	tries = 100
	// stopsWithin is many times as long as the kernel needs to stop all threads.
	stopsWithin = 10 * time.Second
)

// Step lets the wall clock of a process go on by so much, in whole seconds, from the machine's clock. A later Step replaces an earlier one.
// The process is stopped meanwhile, for milliseconds. Step needs the right to trace it, and x86-64.
func Step(ctx context.Context, pid int, by time.Duration) error {
	code, err := function(by)
	if err != nil {
		return err
	}
	start, end, err := vdso(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the memory of process %d: %w", pid, err)
	}
	defer memory.Close()
	at, err := addressOf(memory, start, end, len(code))
	if err != nil {
		return fmt.Errorf("find the clock of process %d: %w", pid, err)
	}
	for range tries {
		if err := stop(ctx, pid); err != nil {
			return err
		}
		var inside bool
		if inside, err = anyInside(pid, start, end); err == nil && !inside {
			_, err = memory.WriteAt(code, int64(at))
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil {
			return fmt.Errorf("step the clock of process %d: %w", pid, err)
		}
		if !inside {
			return nil
		}
	}
	return fmt.Errorf("step the clock of process %d: a thread of it was in the vDSO each time", pid)
}

// vdso is where the kernel mapped its functions in a process.
func vdso(pid int) (start, end uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x", &start, &end); err != nil {
				return 0, 0, fmt.Errorf("read the mapping %q: %w", line, err)
			}
			return start, end, nil
		}
	}
	return 0, 0, fmt.Errorf("process %d has no vDSO", pid)
}

// addressOf is the address of the function, which has room for so many bytes.
func addressOf(memory *os.File, start, end uint64, size int) (uint64, error) {
	image := make([]byte, end-start)
	if _, err := memory.ReadAt(image, int64(start)); err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the symbols of the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == symbol && s.Size >= uint64(size) {
			return start + s.Value, nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no function %s of %d bytes or more", symbol, size)
}

// stop stops all threads of a process.
func stop(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for begun := time.Now(); ; {
		running, err := threadIn(pid, func(thread string) (bool, error) {
			raw, err := os.ReadFile(filepath.Join(thread, "stat"))
			_, after, _ := strings.Cut(string(raw), ") ")
			return !strings.HasPrefix(after, "T"), err
		})
		switch {
		case err != nil:
			return fmt.Errorf("stop process %d: %w", pid, err)
		case !running:
			return nil
		case time.Since(begun) > stopsWithin || ctx.Err() != nil:
			return errors.Join(fmt.Errorf("stop process %d: it runs after %s", pid, time.Since(begun)), ctx.Err(), syscall.Kill(pid, syscall.SIGCONT))
		}
	}
}

// anyInside says whether a thread of a stopped process was stopped in the vDSO.
func anyInside(pid int, start, end uint64) (bool, error) {
	return threadIn(pid, func(thread string) (bool, error) {
		raw, err := os.ReadFile(filepath.Join(thread, "syscall"))
		fields := strings.Fields(string(raw)) // the last one is the program counter
		if err != nil || len(fields) < 3 {
			return false, errors.Join(err, fmt.Errorf("%s is %q, want a program counter", thread, raw))
		}
		var counter uint64
		if _, err := fmt.Sscanf(fields[len(fields)-1], "0x%x", &counter); err != nil {
			return false, fmt.Errorf("%s is %q: %w", thread, raw, err)
		}
		return start <= counter && counter < end, nil
	})
}

// threadIn says whether something holds of one of the threads of a process.
func threadIn(pid int, holds func(thread string) (bool, error)) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		return false, errors.Join(err, fmt.Errorf("process %d has ended", pid))
	}
	for _, thread := range threads {
		if found, err := holds(thread); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// function is the machine code that calls the kernel and adds the seconds to the wall clock.
func function(by time.Duration) ([]byte, error) {
	seconds := int32(by / time.Second)
	if time.Duration(seconds)*time.Second != by {
		return nil, fmt.Errorf("step by %s: want whole seconds, and at most %d", by, 1<<31-1)
	}
	if len(toKernel) == 0 {
		return nil, fmt.Errorf("step a clock: this machine has the architecture %s, want amd64", runtime.GOARCH)
	}
	return append(binary.LittleEndian.AppendUint32(slices.Clone(toKernel), uint32(seconds)), leave), nil
}
