package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/cli"
)

// exitNo is the exit code for a negative answer: nothing leads to the target, an object is broken, a copy differs. If
// the answer is unknown, the exit code is 1.
const exitNo = 2

// session is one call of a command.
type session struct {
	location
	output string
	store  store.Store
	out    io.Writer
}

// long is the help of `agent backup`.
func long() string {
	urls, credentials := store.URLHelp()
	return `Save, list, check, verify, restore, copy and delete the backups in a store. Only save needs a cluster.

--store is a URL or a file:
` + urls + `  store.json                                 the configuration of the agents, or that configuration itself
` + credentials + `You can list and plan encrypted backups without their keys. To read them, set --encryption-keys to a directory with a file
for each age identity, like the mounted Secret of spec.backup.encryption.
--prefix is <namespace>/<cluster>, relative to --store.

Exit codes: 0 success; 1 unknown or not done; 2 the answer is no: nothing leads to the target, an object is broken, a copy
differs, or there are no backups.`
}

// Command is `agent backup`.
func Command() *cobra.Command {
	s := &session{}
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Save, list, plan, check, verify, restore, copy and delete the backups in a store",
		Long:  long(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			s.out = cmd.OutOrStdout()
			if s.output != "table" && s.output != "json" {
				return fmt.Errorf("--output is %q, want table or json", s.output)
			}
			if s.agentConfig != "" {
				if err := s.useAgentConfig(); err != nil {
					return err
				}
			}
			s.store, err = s.open(cmd.Context(), "store")
			return err
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&s.location.store, "store", "", "location of the backups: "+store.URLForms()+", or a JSON file")
	flags.StringVar(&s.credentials, "credentials", "", "file or directory with the credentials of the store")
	flags.StringVar(&s.location.keys, "encryption-keys", "", "directory with the age identities of encrypted backups, like the mounted Secret")
	flags.StringVar(&s.prefix, "prefix", "", "<namespace>/<cluster>, if the store holds the backups of several clusters")
	flags.StringVarP(&s.output, "output", "o", "table", "table or json")
	cmd.AddCommand(s.bindAgentConfig(listCommand(s)), s.bindAgentConfig(showCommand(s)), s.bindAgentConfig(planCommand(s)), checkCommand(s),
		verifyCommand(s), restoreCommand(s), copyCommand(s), gcCommand(s),
		saveCommand(s), dropCommand(s), runCommand(s))
	return cmd
}

// Program is the program druid-backup, which has the commands of `agent backup` at its top.
func Program() *cobra.Command {
	root := Command()
	root.Use = "druid-backup"
	// `version` and `completion` need no store, so its opening moves to the commands that do.
	open := root.PersistentPreRunE
	root.PersistentPreRunE = nil
	for _, cmd := range root.Commands() {
		cmd.PersistentPreRunE = open
		cmd.Example = strings.ReplaceAll(cmd.Example, "agent backup ", "druid-backup ")
	}
	root.AddCommand(cli.VersionCommand("  druid-backup version"))
	return root
}

// read reads the catalog. A place without backups is a negative answer, and the error says what is there instead.
func (s *session) read(ctx context.Context) (catalog.Catalog, error) {
	c, err := catalog.Read(ctx, s.store, s.prefix)
	if err != nil {
		return catalog.Catalog{}, err
	}
	if len(c.Histories) > 0 {
		return c, nil
	}
	what := fmt.Sprintf("no backups in %v", s.store)
	if s.prefix != "" {
		what += fmt.Sprintf(" below %q", s.prefix)
	}
	clusters := clustersIn(c)
	if len(clusters) == 0 && s.prefix != "" {
		all, err := catalog.Read(ctx, s.store, "")
		if err != nil {
			return catalog.Catalog{}, err
		}
		clusters = clustersIn(all)
	}
	switch {
	case len(clusters) > 0:
		what += "; found backups of " + strings.Join(clusters, ", ") + ": pass one as --prefix"
	case len(c.UnknownObjects) > 0:
		what += fmt.Sprintf("; the objects there are not backups, for example %s", c.UnknownObjects[0])
	default:
		what += ": check --store and --prefix, which is <namespace>/<cluster>"
	}
	return catalog.Catalog{}, no(errors.New(what))
}

// readLineage is read, and leaves only the objects of one lineage if its name is not empty.
func (s *session) readLineage(ctx context.Context, only string) (catalog.Catalog, error) {
	c, err := s.read(ctx)
	if err != nil || only == "" {
		return c, err
	}
	h, found := c.History(catalog.Lineage(only))
	if !found {
		return catalog.Catalog{}, no(fmt.Errorf("--lineage: there is no lineage %q; `backup list` prints all lineages", only))
	}
	c.Histories, c.UnknownObjects = []catalog.History{h}, nil
	return c, nil
}

// clustersIn returns the prefixes of other clusters among the objects that a catalog could not assign.
func clustersIn(c catalog.Catalog) []string {
	found := map[string]bool{}
	if len(c.Histories) > 0 {
		found[c.Prefix] = true
	}
	for _, key := range c.UnknownObjects {
		names := strings.Split(key, "/")
		for i, name := range names {
			if _, err := catalog.ParseLineage(name); err == nil && i > 0 {
				found[strings.Join(names[:i], "/")] = true
				break
			}
		}
	}
	delete(found, "")
	var clusters []string
	for prefix := range found {
		clusters = append(clusters, prefix)
	}
	slices.Sort(clusters)
	return clusters
}

func (s *session) json() bool { return s.output == "json" }

func (s *session) printJSON(v any) error {
	encoder := json.NewEncoder(s.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// name returns a key for output, without the prefix that the user passed.
func (s *session) name(key string) string {
	if s.prefix == "" {
		return key
	}
	return strings.TrimPrefix(key, s.prefix+"/")
}

// no marks err as a negative answer.
func no(err error) error { return cli.WithCode(exitNo, err) }

func timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// size formats bytes for output.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

func objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}
