package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
)

// portFlag is the flag with the local port.
const portFlag = "port"

// forwarding is what the flags of connect --forward say.
type forwarding struct {
	port        int
	dir, output string
}

// checkForward says what is wrong with the flags of --forward.
func checkForward(cmd *cobra.Command, forward bool, port int) error {
	switch {
	case !forward && cmd.Flags().Changed(portFlag):
		return errors.New("--port needs --forward, which uses the port")
	case port < 0 || port > maxPort:
		return fmt.Errorf("--port is %d, want a port from 1 to %d, or 0 for any free one", port, maxPort)
	default:
		return nil
	}
}

// forward listens at a local port, says how to connect to it, and passes connections until the command is interrupted.
func (o *options) forward(cmd *cobra.Command, k *kube, d connectionData, flags forwarding) (err error) {
	ctx := cmd.Context()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(flags.port)))
	if err != nil {
		return fmt.Errorf("listen on this computer: %w. Choose another port with --port", err)
	}
	defer func() { _ = listener.Close() }() // serve may have closed it
	f := &forwarder{kube: k, cluster: d.Cluster, now: o.now, notes: cmd.ErrOrStderr()}
	defer f.close()
	first, err := f.member(ctx)
	if err != nil {
		return err
	}
	d.endpoint = d.local(listener.Addr().(*net.TCPAddr).Port)
	dir, remove, err := k.forwardFiles(ctx, &d, flags.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	d.Forward = &forwardData{Endpoint: d.endpoint, Member: first.name, Variables: map[string]string{}}
	for _, v := range d.variables(dir) {
		d.Forward.Variables[v.name] = v.value
	}
	d.Commands = d.forwardCommands(dir)
	if err := o.printAs(cmd, k, flags.output, d, func(p *page) { p.forwarding(d) }); err != nil {
		return err
	}
	return f.serve(ctx, listener)
}

// forwardCommands are what another shell runs.
func (d connectionData) forwardCommands(dir string) []string {
	return append(d.exports(dir), "etcdctl endpoint status -w table")
}

// forwardFiles writes the certificates into the directory of --write. Without one, it writes them into a directory that remove deletes.
func (k *kube) forwardFiles(ctx context.Context, d *connectionData, dir string) (in string, remove func() error, err error) {
	remove = func() error { return nil }
	switch {
	case dir != "":
		in = dir
	case !d.TLS || d.Secret == "":
		return "", remove, nil // there are no certificates, or the user has them
	default:
		if in, err = os.MkdirTemp("", "kubectl-druid-"); err != nil {
			return "", remove, fmt.Errorf("create a directory for the certificates: %w", err)
		}
		remove = func() error {
			if err := os.RemoveAll(in); err != nil {
				return fmt.Errorf("remove the certificates: %w. Remove %s yourself: it has a private key", err, in)
			}
			return nil
		}
	}
	written, err := k.writeConnection(ctx, *d, in)
	if err != nil {
		return "", remove, errors.Join(err, remove())
	}
	d.Written = written
	return filepath.Dir(written[0]), remove, nil
}

// forwarding prints how to use the port.
func (p *page) forwarding(d connectionData) {
	p.serving(d)
	p.field("Forwarding", cell{text: d.Forward.Endpoint + " to member " + d.Forward.Member})
	p.line()
	p.line(cell{text: "In another shell:"})
	for _, command := range d.Commands {
		p.line(cell{text: "  " + command})
	}
	p.line()
	p.line(cell{text: "To end, press Ctrl+C."})
}
