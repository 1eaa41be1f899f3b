package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// The programs of druid end with code 0 when they are interrupted. For a command that asks whether all is well, that would be an answer.
func TestAnInterruptIsNoAnswer(t *testing.T) {
	other := errors.New("other")
	for name, test := range map[string]struct{ err, is error }{
		"interrupted": {fmt.Errorf("get EtcdCluster: %w", context.Canceled), nil},
		"failed":      {other, other},
		"well":        {nil, nil},
	} {
		err := interrupted(func(*cobra.Command, []string) error { return test.err })(nil, nil)
		if (err == nil) != (test.err == nil) || errors.Is(err, context.Canceled) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, command := range NewCommand().Commands() {
		if command.RunE == nil {
			t.Errorf("%s has no function", command.Name())
		}
	}
}
