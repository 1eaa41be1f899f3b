package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// connectPage explains how a client connects.
const connectPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/secure/connect-clients.md"

func (o *options) connectCommand() *cobra.Command {
	output, dir, forward, port := formatTable, "", false, clientPort
	command := o.forCluster(&cobra.Command{
		Use:   "connect CLUSTER",
		Short: "Show how a client connects to an EtcdCluster",
		Long: "Show the endpoints of an EtcdCluster, the Secret with the certificates, and commands that connect from your computer.\n" +
			"With --write, write ca.crt, tls.crt and tls.key of that Secret into a directory, and " + envFile + " with the variables of etcdctl.\n" +
			"Only you may read these files. No other file is overwritten.\n" +
			"With --forward, connections to a port of this computer go to a member that is ready, until you interrupt the command. If the member " +
			"fails, they go to another one.\n" +
			"The command then prints the variables of etcdctl. Without --write, it removes the certificates at its end. You need create of pods/portforward.\n" +
			"Without --write and --forward, the command reads no Secret.",
		Example: "  kubectl druid connect demo\n  kubectl druid connect demo --output json\n  kubectl druid connect demo --write certificates\n  " +
			"kubectl druid connect demo --forward",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if err := checkForward(cmd, forward, port); err != nil {
			return err
		}
		cluster, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if len(cluster.Status.Endpoints) == 0 {
			return fmt.Errorf("EtcdCluster %s/%s has no endpoints yet. See what it waits for: %s", cluster.Namespace, cluster.Name, k.invoke(cluster, "status"))
		}
		d := k.connectionData(cluster)
		if forward {
			if err := o.forward(cmd, k, d, forwarding{port, dir, output}); err != nil {
				return fmt.Errorf("connect to EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
			}
			return nil
		}
		if dir != "" {
			if d.Written, err = k.writeConnection(cmd.Context(), d, dir); err != nil {
				return fmt.Errorf("connect to EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
			}
		}
		return o.printAs(cmd, k, output, d, func(p *page) { p.connection(d) })
	})
	command.Flags().StringVar(&dir, "write", "", "`directory` to write the certificates and the variables of etcdctl into")
	command.Flags().BoolVar(&forward, "forward", false, "pass connections to a port of this computer to a member, until the command is interrupted")
	command.Flags().IntVar(&port, portFlag, port, "`port` of "+loopback+" for --forward; 0 takes a free one")
	bindOutput(command, &output, dataFormats...)
	return command
}

// connectionData is how to connect to a cluster.
func (s selection) connectionData(c v1alpha1.EtcdCluster) connectionData {
	d := connectionData{
		Namespace: c.Namespace, Cluster: c.Name, Endpoints: c.Status.Endpoints, Auth: c.Spec.Auth != nil, TLS: usesTLS(c), Docs: connectPage,
		Commands: []string{},
	}
	down := false
	if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		next := " See what to do: " + s.invoke(c, "status")
		if ready.Reason == v1alpha1.ReasonPaused {
			next = " Start the members: " + s.resume(c)
		}
		d.Problem, down = sentence(ready.Message)+next, ready.Status == metav1.ConditionFalse
	}
	flags := ""
	if d.TLS {
		flags = " --cacert=ca.crt --cert=tls.crt --key=tls.key"
		d.addSecrets(c)
	}
	if d.endpoint = d.local(clientPort); down {
		return d
	}
	if d.Secret != "" {
		read := s.command(fmt.Sprintf(`kubectl -n %s get secret %s -o jsonpath="{.data.${key//./\\.}}" | base64 -d > "$key"`, c.Namespace, d.Secret))
		d.Commands = append(d.Commands, "umask 077", "for key in "+strings.Join(certificateKeys, " ")+"; do\n  "+read+"\ndone")
	}
	d.Commands = append(d.Commands,
		s.command(fmt.Sprintf("kubectl -n %s port-forward service/%s-client %d &", c.Namespace, c.Name, clientPort)),
		"etcdctl --endpoints="+d.endpoint+flags+" endpoint status -w table")
	return d
}

// local is the URL of a port of this computer. The certificates of druid and of cert-manager cover localhost.
func (d connectionData) local(port int) string {
	scheme := "http"
	if d.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://localhost:%d", scheme, port)
}

// addSecrets adds the Secrets that druid makes for clients.
func (d *connectionData) addSecrets(c v1alpha1.EtcdCluster) {
	if c.Spec.TLS == nil || c.Spec.TLS.Client == nil || c.Spec.TLS.Client.SecretRef != nil {
		return
	}
	d.Secret = c.Name + "-connection"
	for _, client := range c.Spec.TLS.Client.Clients {
		d.Clients = append(d.Clients, clientSecret{c.Name + "-client-" + client.Name, client.CommonName})
	}
}

// connection prints how to connect.
func (p *page) connection(d connectionData) {
	p.serving(d)
	p.line()
	for _, command := range d.Commands {
		p.line(cell{text: command})
	}
	written := "Written:"
	if len(d.Commands) > 0 {
		p.line()
		written = "Written, for a shell in which that port-forward runs:"
	}
	if len(d.Written) > 0 {
		p.line(cell{text: written})
		for _, path := range d.Written {
			p.line(cell{text: "  " + path})
		}
		p.line(cell{text: "  . " + quoted(d.Written[len(d.Written)-1])})
		p.line()
	}
	p.line(cell{text: d.Docs})
}

// serving prints what members serve, and which Secrets a client needs.
func (p *page) serving(d connectionData) {
	p.field("Endpoints", cell{text: strings.Join(d.Endpoints, ", ")})
	if d.Problem != "" {
		p.field("Problem", cell{d.Problem, bad})
	}
	if d.Auth {
		p.field("Users", cell{text: "spec.auth is set: a client needs a user with a role"})
	}
	switch {
	case !d.TLS:
		p.field("TLS", cell{"off: everyone who reaches the port can read and change all data, unless spec.auth is set", middle})
	case d.Secret == "":
		p.field("TLS", cell{text: "on"})
		p.field("Secret", cell{text: "your own: druid issues no certificates for clients"})
	default:
		p.field("TLS", cell{text: "on"})
		p.field("Secret", cell{text: d.Secret + ": everyone who reads it can read and change all data"})
	}
	for _, client := range d.Clients {
		p.field("", cell{text: client.Secret + " for client " + client.CommonName})
	}
}
