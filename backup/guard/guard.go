package guard

import (
	"fmt"
	"runtime/debug"
)

// Run turns a panic of work into an error, which holds the stack.
func Run(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return work()
}

// Func is work that does not panic, for the Go of an errgroup.
func Func(work func() error) func() error {
	return func() error { return Run(work) }
}
