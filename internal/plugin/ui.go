package plugin

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/internal/webui"
)

// loopback is the only address at which the web page is served: who reaches it has the permissions of the user.
const loopback = "127.0.0.1"

// maxPort is the last port of TCP.
const maxPort = 65535

func (o *options) uiCommand() *cobra.Command {
	var all bool
	port := 0
	command := &cobra.Command{
		Use:   "ui [CLUSTER]",
		Short: "Show EtcdClusters on a web page",
		Long: "Show the EtcdClusters of a namespace or of all on a web page, or open the page of one first. The page shows changes by itself, and " +
			"changes nothing.\n" +
			"The command serves it on this computer alone, with your permissions, until you interrupt it. The printed address opens one browser, once.",
		Example: "  kubectl druid ui --all-namespaces\n  kubectl druid ui demo",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("got %d arguments, want at most the name of one EtcdCluster", len(args))
			}
			return nil
		},
		ValidArgsFunction: o.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if port < 0 || port > maxPort {
				return fmt.Errorf("--port is %d, want a port from 1 to %d, or 0 for any free one", port, maxPort)
			}
			k, err := o.connect()
			if err != nil {
				return err
			}
			options := webui.Options{Source: webSource{k, all, o.now}, Now: o.now, Scope: "Namespace " + k.namespace, Start: "/"}
			if all {
				options.Scope = "All namespaces"
			}
			if len(args) == 1 {
				options.Start = webui.ClusterPath(k.namespace, args[0])
			}
			return serveUI(cmd, options, port)
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the EtcdClusters of all namespaces")
	command.Flags().IntVar(&port, "port", port, "`port` of "+loopback+" to serve at; 0 takes a free one")
	return command
}

// serveUI serves until the command is interrupted.
func serveUI(cmd *cobra.Command, options webui.Options, port int) error {
	var config net.ListenConfig
	listener, err := config.Listen(cmd.Context(), "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("serve the web page: %w. Choose another port with --port", err)
	}
	server, err := webui.New(options, listener)
	if err != nil {
		_ = listener.Close() // nothing was served
		return err
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Open this address in a browser. It works once:\n  %s\nTo end, press Ctrl+C.\n", server.URL()); err != nil {
		return err
	}
	return server.Serve(cmd.Context(), listener)
}

// webSource reads for the web page what get and status read.
type webSource struct {
	*kube
	// all reads the EtcdClusters of all namespaces.
	all bool
	now func() time.Time
}

// Fleet implements webui.Source.
func (s webSource) Fleet(ctx context.Context) (webui.Fleet, error) {
	k := *s.kube
	if s.all {
		k.namespace = ""
	}
	clusters, unread, err := k.fleet(ctx, s.now())
	return webui.Fleet{Clusters: clusters, Unread: unread}, err
}

// Cluster implements webui.Source.
func (s webSource) Cluster(ctx context.Context, namespace, name string) (view.Cluster, error) {
	k := *s.kube
	k.namespace = namespace
	objects, err := k.objects(ctx, name)
	if err != nil {
		return view.Cluster{}, err
	}
	return k.describe(objects, s.now()), nil
}

// Backups implements webui.Source.
func (s webSource) Backups(ctx context.Context, namespace, name string) (webui.Backups, error) {
	k := *s.kube
	k.namespace = namespace
	objects, err := k.objects(ctx, name)
	if err != nil {
		return webui.Backups{}, err
	}
	found, err := k.backups(ctx, objects, view.Of(objects, s.now()))
	if err != nil {
		return webui.Backups{}, fmt.Errorf("list the backups of EtcdCluster %s/%s: %w", namespace, name, err)
	}
	return webBackups(found), nil
}

// webBackups has what backups prints.
func webBackups(b backups) webui.Backups {
	all := webui.Backups{Member: b.Member, Store: b.Store, Prefix: b.Prefix, Totals: view.Sentence(totals(b.Lineages)), Notes: backupNotes(b)}
	for _, one := range branches(b.Lineages) {
		all.Lanes = append(all.Lanes, webui.Lane{Summary: one.Summary, Depth: one.depth})
	}
	return all
}
