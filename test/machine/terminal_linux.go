package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal returns a new terminal, and a function that closes it and returns what was written to it.
func OpenTerminal(tb testing.TB) (terminal *os.File, shown func() string) {
	tb.Helper()
	open := func(path string) *os.File {
		file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = file.Close() }) // nothing is kept in it
		return file
	}
	screen := open("/dev/ptmx")
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	terminal = open(fmt.Sprintf("/dev/pts/%d", number))
	return terminal, func() string {
		tb.Helper()
		if err := terminal.Close(); err != nil {
			tb.Fatal(err)
		}
		text, err := io.ReadAll(screen)
		if !errors.Is(err, unix.EIO) { // which says that it is closed
			tb.Fatal(err)
		}
		return string(text)
	}
}
