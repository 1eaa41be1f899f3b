// Command release builds the files of a release of druid from a clone of its repository, and pushes the image of a release.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
)

const usage = `usage:
  release make --version v0.1.0 [--repo DIR] [--out DIR] [--key FILE] [--platforms LIST]
  release push --version v0.1.0 [--to ghcr.io/etcd-druid/druid] [--repo DIR] [--out DIR] [--platforms LIST]
  release key --key FILE`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		stop()
		_, _ = fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run runs one command. It writes a result to stdout, and its progress to out.
func run(ctx context.Context, args []string, stdout, out io.Writer) error {
	if len(args) == 0 || !slices.Contains([]string{"make", "push", "key"}, args[0]) {
		return errors.New("want the command make, push or key\n" + usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(out)
	text := flags.String("version", "", "version of the release, like v0.1.0")
	repo := flags.String("repo", ".", "clone of the repository")
	dir := flags.String("out", "", "directory of the release (default <repo>/dist/<version>)")
	keyFile := flags.String("key", "", "make and key: secret key of minisign, which signs the checksums and the image")
	list := flags.String("platforms", "", "make: build for these platforms alone, like linux/amd64,darwin/arm64; push: the image needs these "+
		"alone; a release has all")
	to := flags.String("to", repository, "push: repository to push the image to")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q\n%s", flags.Arg(0), usage)
	}
	if args[0] == "key" {
		return printKey(stdout, *keyFile)
	}
	v, err := parseVersion(*text)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(*repo)
	if err != nil {
		return err
	}
	if *dir == "" {
		*dir = filepath.Join(root, "dist", string(v))
	}
	if args[0] == "push" {
		return pushAndSay(ctx, *dir, v, *to, *list, out)
	}
	r := release{repo: root, out: *dir, version: v, progress: out}
	if err := r.choose(*list); err != nil {
		return err
	}
	if *keyFile != "" {
		if r.key, err = readKey(*keyFile, os.Getenv(passwordVariable)); err != nil {
			return err
		}
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	return r.make(ctx)
}

// pushAndSay pushes the image with the platforms of a list, or with all, and says by which digest it can be pulled.
func pushAndSay(ctx context.Context, dir string, v version, to, list string, out io.Writer) error {
	want, err := required(list, to)
	if err != nil {
		return err
	}
	digest, err := push(ctx, dir, v, to, want)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "pushed", digest)
	return nil
}

// printKey prints the public half of a secret key of minisign as PEM.
func printKey(stdout io.Writer, file string) error {
	if file == "" {
		return errors.New("the flag --key is not set: set it to a secret key of minisign")
	}
	key, err := readKey(file, os.Getenv(passwordVariable))
	if err != nil {
		return err
	}
	text, err := publicKey(key)
	if err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}
