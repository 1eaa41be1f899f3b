//go:build !linux

package agent

import "runtime/debug"

// releaseUnused gives back the heap of an inspection. Which pages of our own binary may be given back only Linux reports.
func releaseUnused() { debug.FreeOSMemory() }
