package loop_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/loop"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	if !loop.Sleep(t.Context(), 0) {
		t.Error("a pause of no time did not end by itself")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if loop.Sleep(ended, time.Hour) {
		t.Error("a pause ended by its time after its context had ended")
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := loop.Backoff{First: time.Second, Last: 5 * time.Second}
	for _, seconds := range []int{1, 2, 4, 5, 5} {
		want := time.Duration(seconds) * time.Second
		if got := b.Next(); got != want {
			t.Errorf("the pause is %v, want %v", got, want)
		}
	}
	if b.Reset(); b.Next() != time.Second {
		t.Error("a pause after a reset is not the first one")
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	var s loop.Signal
	s.Send() // nothing waits
	first, second := s.Wait(), s.Wait()
	select {
	case <-first:
		t.Fatal("a signal came before the change")
	default:
	}
	s.Send()
	<-first
	<-second
	select {
	case <-s.Wait():
		t.Error("one change gave two signals")
	default:
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	var c loop.Change[string]
	for i, want := range []bool{false, true, false, true, true} {
		if got := c.To([]string{"", "a", "a", "b", ""}[i]); got != want {
			t.Errorf("value %d changed: %v, want %v", i, got, want)
		}
	}
}
