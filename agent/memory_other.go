//go:build !linux

package agent

import "runtime/debug"

// releaseUnused returns the heap of an inspection. Only Linux reports which pages of the executable can be released
// too.
func releaseUnused() { debug.FreeOSMemory() }
