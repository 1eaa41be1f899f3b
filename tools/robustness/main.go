// Command robustness records what clients of an etcd cluster do and see, and validates the record. Traffic, model and validation are those
// of etcd's own robustness tests (go.etcd.io/etcd/tests/v3/robustness).
//
//	robustness record -endpoints HOST:PORT,... -out DIR   until its standard input ends
//	robustness validate DIR                               with the data directories of members at DIR/server-NAME
//	robustness states -revisions N,... DIR                with the same; prints the keys and values at these revisions
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// undecided is the exit code of a validation that did not end. test/e2e/harness/history.go has the same number.
const undecided = 3

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "robustness:", err)
		if errors.Is(err, errUndecided) {
			os.Exit(undecided)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command: choose record, validate or states")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	endpoints := flags.String("endpoints", "", "addresses without TLS, one for each member")
	out := flags.String("out", "", "directory for the record")
	revisions := flags.String("revisions", "", "revisions, separated by commas")
	kind := flags.String("traffic", "etcd", "what the clients do: etcd or kubernetes")
	perSecond := flags.Int("rate", 100, "operations of the clients per second at the start")
	about := flags.Int("about", 25_000, "operations for which the rate is halved again and again, so that the validation ends")
	slowest := flags.Int("slowest", 10, "operations per second below which the rate does not fall")
	search := flags.Duration("search", 5*time.Minute, "for how long the validation searches for an order of the operations")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case args[0] == "record" && *endpoints != "" && *out != "" && *perSecond > 0 && *about > 0 && *slowest > 0:
		return record(ctx, strings.Split(*endpoints, ","), *kind, pace{*perSecond, *about, *slowest}, *out, ended(os.Stdin))
	case args[0] == "validate" && flags.NArg() == 1:
		return check(flags.Arg(0), *search)
	case args[0] == "states" && *revisions != "" && flags.NArg() == 1:
		return states(flags.Arg(0), *revisions)
	}
	return fmt.Errorf("command %q: want record with -endpoints and -out, validate with a directory, or states with -revisions and a directory", args[0])
}

// ended is closed when the input ends.
func ended(input io.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, input)
	}()
	return done
}
