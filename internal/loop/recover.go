package loop

import (
	"fmt"
	"runtime/debug"
)

// Recover turns a panic of work into an error, which holds the stack.
func Recover(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return work()
}

// Recovered is work that does not panic, for the Go of an errgroup.
func Recovered(work func() error) func() error {
	return func() error { return Recover(work) }
}
