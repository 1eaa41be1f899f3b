package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/agent/transport"
)

// stepDown are the flags of step-down.
type stepDown struct {
	to, endpoint, tlsDir, tlsName string
	plaintext                     bool
}

func stepDownCommand() *cobra.Command {
	f := stepDown{endpoint: transport.URL(false, "localhost", config.ClientPort)}
	cmd := &cobra.Command{
		Use:   "step-down",
		Short: "Move the leadership from the member of this Pod to another voter",
		Long: "Move the leadership from the member of this Pod to another voter. Without --to, it is the one with the longest log.\n" +
			"The command runs in the container of the agent, and prints the new leader as JSON. kubectl druid move-leader runs it.",
		Example: "  agent step-down --to demo-bqdq7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), duties.StepDownTimeout)
			defer cancel()
			clients := transport.NewClients(f.transport())
			defer clients.Close()
			to, err := duties.TransferTo(ctx, clients.Dial, f.endpoint, f.to)
			switch {
			case err != nil:
				return err
			case to.ID == 0:
				return errors.New("the member of this Pod does not lead. Run the command in the Pod of the leader")
			}
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(duties.TransferredTo(to)); err != nil {
				return fmt.Errorf("print the new leader %s: %w", to.Name, err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "", "`name` of the member that is to lead")
	flags.StringVar(&f.endpoint, "endpoint", f.endpoint, "URL of the client port of the member of this Pod")
	flags.StringVar(&f.tlsDir, "tls-dir", "", "directory with ca.crt, client.crt and client.key")
	flags.StringVar(&f.tlsName, "tls-name", "", "DNS name in the certificate of every member")
	flags.BoolVar(&f.plaintext, "client-plaintext", false, "members possibly do not use TLS yet")
	cmd.MarkFlagsRequiredTogether("tls-dir", "tls-name")
	return cmd
}

// transport dials the members as the agent does.
func (f stepDown) transport() transport.Transport {
	if f.tlsDir == "" {
		return transport.Transport{}
	}
	return transport.Transport{Client: certificates.Dial(f.tlsDir, f.tlsName), Plaintext: f.plaintext}
}
