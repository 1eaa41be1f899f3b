package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestCauseSurvivesWrapping(t *testing.T) {
	broken := errors.New("broken")
	ctx, cancel := Patient(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	for name, test := range map[string]struct {
		err  error
		want Cause
	}{
		"none":              {nil, ""},
		"unknown":           {broken, ""},
		"marked":            {fmt.Errorf("put a: %w", Caused(CauseFull, broken)), CauseFull},
		"joined":            {errors.Join(broken, Caused(CauseThrottled, broken)), CauseThrottled},
		"a key":             {fmt.Errorf("%w: no entry", ErrNoKey), CauseKeyMissing},
		"a stalled listing": {Because(ctx, context.Canceled), CauseUnreachable},
		"no bucket":         {fmt.Errorf("look up a: %w", ErrNoBucket), CauseNotFound},
		"an absent object":  {ErrAbsent, ""},
	} {
		if got := CauseOf(test.err); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if err := Caused("", nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
	if err := Caused(CauseFull, broken); err.Error() != "broken" || !errors.Is(err, broken) {
		t.Errorf("a cause makes %v", err)
	}
}
