package plugin

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
)

// selection are the flags that selected the Kubernetes and the user, each with a space before it. A command that is
// printed has them too, so that it acts on the same Kubernetes.
type selection string

// selected are the flags that were set. The others are credentials and settings of a connection, which are not for a screen.
func (o *options) selected() selection {
	var text strings.Builder
	for _, flag := range []struct{ name, value string }{
		{"kubeconfig", o.loading.ExplicitPath}, {"context", o.overrides.CurrentContext}, {"cluster", o.overrides.Context.Cluster},
		{"user", o.overrides.Context.AuthInfo}, {"server", o.overrides.ClusterInfo.Server}, {"as", o.overrides.AuthInfo.Impersonate},
	} {
		if flag.value != "" {
			text.WriteString(" --" + flag.name + " " + quoted(flag.value))
		}
	}
	return selection(text.String())
}

// bare is a text that a shell takes as it is.
var bare = regexp.MustCompile(`^[A-Za-z0-9@%+:,./_-]+$`)

// quoted is a text as one word of a shell.
func quoted(text string) string {
	if bare.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// command is a command of kubectl or of the plugin with the flags.
func (s selection) command(text string) string {
	for _, program := range []string{"kubectl druid ", "kubectl "} {
		if rest, found := strings.CutPrefix(text, program); found {
			return strings.TrimSuffix(program, " ") + string(s) + " " + rest
		}
	}
	return text
}

// describe describes a cluster. The commands of its next steps have the flags, on a page and as data.
func (s selection) describe(o view.Objects, now time.Time) view.Cluster {
	c := view.Of(o, now)
	for i := range c.Next {
		c.Next[i].Command = s.command(c.Next[i].Command)
	}
	return c
}

// invoke is a command of the plugin about an EtcdCluster.
func (s selection) invoke(c v1alpha1.EtcdCluster, verb string) string {
	return s.command(fmt.Sprintf("kubectl druid -n %s %s %s", c.Namespace, verb, c.Name))
}

// resume is the command that ends a pause.
func (s selection) resume(c v1alpha1.EtcdCluster) string {
	return s.invoke(c, "resume") + " --replicas NUMBER"
}

// keptOff says that an annotation keeps druid off the cluster, and how to end that. It is empty without the annotation.
func (s selection) keptOff(c v1alpha1.EtcdCluster) string {
	reason := c.Annotations[v1alpha1.HandsOffAnnotation]
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("druid is kept off the cluster: %s. To end that: %s --end", strings.TrimRight(reason, "."), s.invoke(c, "hands-off"))
}

// page is the output of a command about a Kubernetes.
func (o *options) page(cmd *cobra.Command, k *kube) *page {
	p := newPage(cmd.OutOrStdout(), o.now())
	p.selection = k.selection
	return p
}
