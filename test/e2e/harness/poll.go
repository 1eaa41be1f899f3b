package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// pollInterval is short next to what is measured with it (seconds) and long next to one API request (milliseconds).
const pollInterval = 200 * time.Millisecond

// maxWait with what takes at most seconds on an idle machine.
const maxWait = 3 * time.Minute

// attemptTimeout bounds one attempt, so that a single lost packet does not use up the whole deadline.
const attemptTimeout = 10 * time.Second

// Eventually calls try until it returns nil, and returns how long that took. When it does not within the deadline, the
// test ends with the last answer.
func Eventually(t testing.TB, within time.Duration, what string, try func(context.Context) error) time.Duration {
	t.Helper()
	took, err := poll(t.Context(), within, try)
	if err != nil {
		dumpNow(t)
		t.Fatalf("%s: not within %s; last seen: %v", what, within, err)
	}
	return took
}

// poll is Eventually without a test: the error is the last one of try.
func poll(ctx context.Context, within time.Duration, try func(context.Context) error) (time.Duration, error) {
	begun := time.Now()
	for {
		err := attempt(ctx, try)
		took := time.Since(begun)
		if err == nil {
			return took, nil
		}
		if took > within || !pause(ctx, pollInterval) {
			return took, err
		}
	}
}

// silence is how long Consistently does without an answer: longer than any election that a busy machine brings about.
const silence = time.Minute

// noAnswerError is the error of a look that saw nothing, neither good nor bad.
type noAnswerError struct{ error }

// NoAnswer marks an error of asking, nil for none: on a busy machine a request may time out, and that says nothing of
// what was asked for.
func NoAnswer(err error) error {
	if err == nil {
		return nil
	}
	return noAnswerError{err}
}

// IsNoAnswer says whether an error is marked by NoAnswer.
func IsNoAnswer(err error) bool {
	_, unknown := errors.AsType[noAnswerError](err)
	return unknown
}

// Consistently calls try for the whole span. The first error ends the test: what must not happen happened. One that is
// marked by NoAnswer does not, unless a minute passes without an answer. The last look has one.
func Consistently(t testing.TB, span time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	begun := time.Now()
	for answered, last := false, begun; !answered || time.Since(begun) < span; {
		err := attempt(t.Context(), try)
		if answered = err == nil; answered {
			last = time.Now()
		} else if !IsNoAnswer(err) || time.Since(last) > silence {
			dumpNow(t)
			t.Fatalf("%s: broken after %s of %s: %v", what, time.Since(begun).Round(time.Millisecond), span, err)
		}
		if !pause(t.Context(), time.Second) {
			t.Fatalf("%s: the test ended after %s of %s", what, time.Since(begun).Round(time.Millisecond), span)
		}
	}
}

func attempt(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return try(ctx)
}

// pause waits between two looks and says whether there is to be another one.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// differ is the error of a check that compares.
func differ(what string, got, want any) error {
	return fmt.Errorf("%s is %v, want %v", what, got, want)
}
