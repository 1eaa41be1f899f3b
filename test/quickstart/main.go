package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/etcd-druid/druid/test/rig/lab"
)

func main() {
	down := flag.Bool("down", false, "end what a former quickstart left running")
	once := flag.Bool("once", false, "report the story on a rig of its own, which ends with it; for tests of the quickstart itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *down, *once); err != nil {
		fmt.Fprintf(os.Stderr, "\nquickstart: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, down, once bool) (err error) {
	if down {
		return end(ctx)
	}
	t := &tour{narrator: newNarrator(os.Stdout), once: once}
	defer func() {
		if once && t.lab != nil {
			err = errors.Join(err, t.lab.Down(context.WithoutCancel(ctx)))
		}
	}()
	for _, step := range []func(context.Context) error{
		t.bringUp, t.install, t.form, t.look, t.write, t.destroyAndHeal, t.read,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if !once {
		t.showMore()
	}
	return nil
}

// rigName is the rig that the commands of the tour speak to when they are typed as they are printed.
func rigName() string {
	if name := os.Getenv("RIG_NAME"); name != "" {
		return name
	}
	return lab.DefaultName
}

func end(ctx context.Context) error {
	l, err := lab.Attach(rigName())
	if err != nil {
		return err
	}
	if err := l.Down(ctx); err != nil {
		return err
	}
	fmt.Printf("rig %q has ended; what was built stays cached for the next time\n", l.Name())
	return nil
}
