package plugin

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
)

// dataFormats are the formats of a command without a wide table.
var dataFormats = []string{formatTable, formatJSON, formatYAML}

// printAs prints a page, or the same as data. k is nil if no Kubernetes was found.
func (o *options) printAs(cmd *cobra.Command, k *kube, output string, data any, table func(p *page)) error {
	if output != formatTable {
		return printData(cmd.OutOrStdout(), data, output)
	}
	p := newPage(cmd.OutOrStdout(), o.now())
	if k != nil {
		p.selection = k.selection
	}
	table(p)
	return p.err
}

// explanation is what why prints, as data.
type explanation struct {
	Namespace string      `json:"namespace"`
	Cluster   string      `json:"cluster"`
	State     view.State  `json:"state"`
	Health    view.Health `json:"health"`
	// Rule is the row of the table that decided, Why its reason, and Docs the row.
	Rule string `json:"rule"`
	Why  string `json:"why"`
	Docs string `json:"docs"`
	// Conditions are those that are not as they should be, and Members those that are not ready.
	Conditions []view.Condition `json:"conditions,omitempty"`
	Members    []view.Member    `json:"members,omitempty"`
	Events     []view.Event     `json:"events,omitempty"`
	Unread     []view.Unread    `json:"unread,omitempty"`
}

func explanationOf(c view.Cluster) explanation {
	return explanation{
		Namespace: c.Namespace, Cluster: c.Name, State: c.State, Health: c.Health, Rule: c.Rule, Why: c.Why, Docs: view.RuleDocs(c.Rule),
		Conditions: slices.DeleteFunc(slices.Clone(c.Conditions), func(one view.Condition) bool { return one.Wished }),
		Members:    slices.DeleteFunc(slices.Clone(c.Members), view.Member.Fine),
		Events:     c.Events, Unread: c.Unread,
	}
}

// recoveryData is what recover prints, as data.
type recoveryData struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Recovery is status.recovery. A cluster that needs no recovery has none.
	Recovery *v1alpha1.RecoveryStatus `json:"recovery,omitempty"`
	// Approve is the command that approves the plan, if it waits for an approval.
	Approve string `json:"approve,omitempty"`
	Docs    string `json:"docs,omitempty"`
}

func (s selection) recoveryData(c v1alpha1.EtcdCluster) recoveryData {
	d := recoveryData{Namespace: c.Namespace, Cluster: c.Name, Recovery: c.Status.Recovery}
	if d.Recovery != nil {
		d.Approve, d.Docs = s.approveCommand(c), pageOfRecovery(c)
	}
	return d
}

// connectionData is what connect prints, as data.
type connectionData struct {
	Namespace string   `json:"namespace"`
	Cluster   string   `json:"cluster"`
	Endpoints []string `json:"endpoints"`
	// Problem says why the members do not serve clients as usual, and what to do. It is empty if they do.
	Problem string `json:"problem,omitempty"`
	// Auth says whether a client needs a user, and TLS whether members serve clients by TLS.
	Auth bool `json:"auth"`
	TLS  bool `json:"tls"`
	// Secret has the certificates with which the Commands connect. It is empty if druid issues none.
	Secret string `json:"secret,omitempty"`
	// Clients are the clients with a Secret of their own.
	Clients []clientSecret `json:"clients,omitempty"`
	// Commands connect from this computer, in this order. There are none while no member serves clients.
	Commands []string `json:"commands"`
	// Written are the files that --write wrote.
	Written []string `json:"written,omitempty"`
	// Forward is what --forward does. It is empty without that flag.
	Forward *forwardData `json:"forward,omitempty"`
	Docs    string       `json:"docs"`
	// endpoint is that of the port-forward.
	endpoint string
}

// forwardData is where clients of this computer connect while connect runs.
type forwardData struct {
	Endpoint string `json:"endpoint"`
	// Member is the first one that connections go to.
	Member string `json:"member"`
	// Variables are the environment variables of etcdctl.
	Variables map[string]string `json:"variables"`
}

// clientSecret is a Secret with the certificate of one client.
type clientSecret struct {
	Secret     string `json:"secret"`
	CommonName string `json:"commonName"`
}

// versionData is what version prints, as data.
type versionData struct {
	Plugin string `json:"plugin"`
	// Reads is the version of druid's API that the plugin reads, and Serves are those that Kubernetes serves.
	Reads  string   `json:"reads"`
	Serves []string `json:"serves,omitempty"`
}
