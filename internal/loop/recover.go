package loop

import (
	"fmt"
	"runtime/debug"
)

// Recover returns a panic of work as an error with the stack.
func Recover(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return work()
}

// Recovered returns work with panics as errors, for errgroup.Group.Go.
func Recovered(work func() error) func() error {
	return func() error { return Recover(work) }
}
