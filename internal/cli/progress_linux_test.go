package cli

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/test/machine"
)

const (
	before = "\r\x1b[K\x1b[?7l"
	after  = "\x1b[?7h"
	erased = "\r\x1b[K"
)

func TestLineOfProgressIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &Progress{w: &out}
		p.Apart(nil) // there is no line yet
		p.Show("1 %")
		p.Show("2 %")
		time.Sleep(progressEach)
		p.Show("3 %")
		p.Apart(func() { out.WriteString("a line of the output\n") })
		p.Show("4 %")
		p.Apart(nil)
		want := before + "1 %" + after + before + "3 %" + after + erased + "a line of the output\n" + before + "4 %" + after + erased
		if got := out.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestProgressOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		failed := errors.New("it failed")
		if err := (&Progress{w: &out}).During("the plan", func() error { time.Sleep(2500 * time.Millisecond); return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
		want := before + "Waiting for the plan: 1s" + after + before + "Waiting for the plan: 2s" + after + erased
		if got := out.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	if got := waiting("the plan", 61*time.Second+time.Millisecond); got != "Waiting for the plan: 1m1s" {
		t.Errorf("got %q", got)
	}
}

// Logs and pipes keep what they had.
func TestProgressOnlyOnATerminal(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	p.Show("1 %")
	err := p.During("it", func() error { return nil })
	p.Apart(func() { out.WriteString("output\n") })
	if err != nil || p.On() || out.String() != "output\n" {
		t.Errorf("a builder: got %v, %t, %q", err, p.On(), out.String())
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if IsTerminal(file) {
		t.Error("a file is taken for a terminal")
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	terminal, shown := machine.OpenTerminal(t)
	p = NewProgress(terminal)
	p.Show("50 %")
	p.Apart(nil)
	if got, want := shown(), before+"50 %"+after+erased; got != want {
		t.Errorf("the terminal got %q, want %q", got, want)
	}
}
