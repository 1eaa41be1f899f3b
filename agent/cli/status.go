package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/agent"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
)

func statusCommand() *cobra.Command {
	var host, output string
	var port int
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print what the agent of this Pod knows about its member",
		Example: `  agent status
  agent status --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, ok := map[string]func(io.Writer, agent.Status) error{"table": printTable, "json": printJSON}[output]
			if !ok {
				return fmt.Errorf("--output is %q, want table or json", output)
			}
			status, err := getStatus(cmd.Context(), transport.Transport{}, host, port)
			if err != nil {
				return err
			}
			return format(cmd.OutOrStdout(), status)
		},
	}
	cmd.Flags().StringVar(&host, "host", "localhost", "host of the agent")
	cmd.Flags().IntVar(&port, "port", config.AgentPort, "port of the agent")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func getStatus(ctx context.Context, t transport.Transport, host string, port int) (status agent.Status, err error) {
	url := transport.URL(false, host, port) + "/v1/status"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return agent.Status{}, fmt.Errorf("get status: %w", err)
	}
	response, err := t.HTTPClient().Do(request)
	if err != nil {
		return agent.Status{}, fmt.Errorf("get status: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return agent.Status{}, fmt.Errorf("get status: %s returned %s", url, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		return agent.Status{}, fmt.Errorf("get status: %s: %w", url, err)
	}
	return status, nil
}

func printJSON(w io.Writer, s agent.Status) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// printTable omits unknown values.
func printTable(w io.Writer, s agent.Status) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(table, "%s\t%s\n", name, value) // Flush reports the error
		}
	}
	row("MEMBER", s.Namespace+"/"+s.Member)
	row("AGENT", s.AgentVersion)
	row("LAUNCH", launchText(s.Launch))
	row("START", words(s.Start.Mode, parens(s.Start.Rule), s.Start.Reason))
	row("DATA", s.Start.Data)
	row("ETCD", words(s.Etcd.Version, etcdText(s.Etcd)))
	row("MEMBER ID", s.Etcd.MemberID)
	row("CLUSTER ID", s.Etcd.ClusterID)
	row("ROLE", s.Etcd.Role)
	row("LEADER", s.Etcd.Leader)
	if s.Etcd.Reachable {
		row("REVISION", fmt.Sprint(s.Etcd.Revision))
		row("DB SIZE", fmt.Sprintf("%d bytes, %d in use", s.Etcd.DBSize, s.Etcd.DBSizeInUse))
		row("RAFT", fmt.Sprintf("term %d, index %d, applied %d", s.Etcd.RaftTerm, s.Etcd.RaftIndex, s.Etcd.AppliedIndex))
	}
	row("ERRORS", strings.Join(s.Etcd.Errors, "; "))
	row("LEASE", leaseText(s))
	row("REMOVAL", removalText(s.Lease))
	if s.Leading {
		row("DUTIES", "this agent leads")
	}
	return table.Flush()
}

func launchText(l agent.LaunchStatus) string {
	switch {
	case !l.Connected:
		return words("not connected", l.Error)
	case l.PID != 0:
		return fmt.Sprintf("%s (PID %d)", l.State, l.PID)
	default:
		return words(l.State, l.Error)
	}
}

func etcdText(e agent.EtcdStatus) string {
	switch {
	case e.Healthy:
		return "healthy"
	case e.Reachable:
		return words("not healthy:", e.Problem)
	default:
		return e.Problem
	}
}

func leaseText(s agent.Status) string {
	switch {
	case !s.Lease.Known:
		return "not read"
	case s.Lease.PodUID != "" && s.Lease.PodUID != s.PodUID:
		return "belongs to another Pod: " + s.Lease.PodUID
	default:
		return words(s.Lease.HolderIdentity)
	}
}

// removalText describes the progress of the member's removal.
func removalText(l agent.LeaseStatus) string {
	said := map[leases.RemovalState]string{
		leases.RemovalNone:       "",
		leases.RemovalRequested:  "removal requested; it stays a full member until its removal is claimed",
		leases.RemovalBegun:      "removal claimed and in progress",
		leases.RemovalDone:       "removed from the cluster; druid deletes its Pod",
		leases.RemovalUnreadable: "the removal request on its Lease is invalid and has no effect",
	}
	words, known := said[leases.RemovalState(l.Removal)]
	if !known { // an agent of another version
		return l.Removal
	}
	return words
}

func parens(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// words joins the parts that are not empty.
func words(parts ...string) string {
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}
