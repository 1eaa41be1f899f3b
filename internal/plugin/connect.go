package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

func (o *options) connectCommand() *cobra.Command {
	return o.forCluster(&cobra.Command{
		Use:   "connect CLUSTER",
		Short: "Show how a client connects to an EtcdCluster",
		Long: "Show the endpoints of an EtcdCluster, the Secret with the certificates, and commands that connect from your computer.\n" +
			"The command reads no Secret.",
		Example: "  kubectl druid connect demo",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		cluster, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if len(cluster.Status.Endpoints) == 0 {
			return fmt.Errorf("EtcdCluster %s/%s has no endpoints yet. See what it waits for: %s", cluster.Namespace, cluster.Name, k.invoke(cluster, "status"))
		}
		p := o.page(cmd, k)
		p.connection(cluster)
		return p.err
	})
}

// connection prints how to connect.
func (p *page) connection(c v1alpha1.EtcdCluster) {
	p.field("Endpoints", cell{text: strings.Join(c.Status.Endpoints, ", ")})
	if c.Spec.Auth != nil {
		p.field("Users", cell{text: "spec.auth is set: a client needs a user with a role"})
	}
	if !usesTLS(c) {
		p.field("TLS", cell{"off: everyone who reaches the port can read and change all data, unless spec.auth is set", middle})
		p.line()
		p.forward(c, "http", "")
		return
	}
	p.field("TLS", cell{text: "on"})
	secret := p.secrets(c)
	p.line()
	if secret != "" {
		p.line(cell{text: "umask 077"})
		p.line(cell{text: "for key in ca.crt tls.crt tls.key; do"})
		p.line(cell{text: "  " + p.command(fmt.Sprintf(`kubectl -n %s get secret %s -o jsonpath="{.data.${key//./\\.}}" | base64 -d > "$key"`, c.Namespace, secret))})
		p.line(cell{text: "done"})
	}
	p.forward(c, "https", " --cacert=ca.crt --cert=tls.crt --key=tls.key")
}

// secrets prints the Secrets of clients, and returns the one with which the commands connect, if druid knows one.
func (p *page) secrets(c v1alpha1.EtcdCluster) string {
	if c.Spec.TLS == nil || c.Spec.TLS.Client == nil || c.Spec.TLS.Client.SecretRef != nil {
		p.field("Secret", cell{text: "your own: druid issues no certificates for clients"})
		return ""
	}
	connection := c.Name + "-connection"
	p.field("Secret", cell{text: connection + ": everyone who reads it can read and change all data"})
	for _, client := range c.Spec.TLS.Client.Clients {
		p.field("", cell{text: fmt.Sprintf("%s-client-%s for client %s", c.Name, client.Name, client.CommonName)})
	}
	return connection
}

func (p *page) forward(c v1alpha1.EtcdCluster, scheme, flags string) {
	p.line(cell{text: p.command(fmt.Sprintf("kubectl -n %s port-forward service/%s-client %d &", c.Namespace, c.Name, clientPort))})
	p.line(cell{text: fmt.Sprintf("etcdctl --endpoints=%s://localhost:%d%s endpoint status -w table", scheme, clientPort, flags)})
	p.line()
	p.line(cell{text: "https://github.com/etcd-druid/druid/blob/main/docs/how-to/secure/connect-clients.md"})
}
