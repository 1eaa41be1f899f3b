package loop_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/loop"
)

func TestAPanicIsAnErrorWithItsStack(t *testing.T) {
	t.Parallel()
	var group errgroup.Group
	group.Go(loop.Recovered(func() error { panic("a fault") }))
	err := group.Wait()
	if err == nil || !strings.Contains(err.Error(), "a fault") || !strings.Contains(err.Error(), "recover_test.go") {
		t.Errorf("%v, want the panic and where it came from", err)
	}
}

func TestWhatDoesNotPanicIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errors.New("an error")} {
		if err := loop.Recover(func() error { return want }); err != want { //nolint:errorlint // the same, not one that wraps it
			t.Errorf("%v, want %v", err, want)
		}
	}
}
