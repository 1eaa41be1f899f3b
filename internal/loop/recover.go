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

// RecoverFault is Recover for work on mapped memory: it also recovers from a fault of a page that is not there. The error
// is what asError makes of the panic.
func RecoverFault(work func() error, asError func(panicked any) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = asError(p)
		}
	}()
	return work()
}

// Recovered returns work with panics as errors, for errgroup.Group.Go.
func Recovered(work func() error) func() error {
	return func() error { return Recover(work) }
}
