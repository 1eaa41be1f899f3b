//go:build unix

package transport

import "golang.org/x/sys/unix"

// wakeAt sets how many bytes must arrive before the kernel wakes this process. If it fails, reading only costs more
// CPU.
func (c *gatheringConn) wakeAt(n int) {
	_ = c.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
}
