package backup

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcd-druid/druid/backup/chain"
)

// targetFlags say which state is meant.
type targetFlags struct {
	revision int64
	time     string
	object   string
	lineage  string
	without  []string
}

func (t *targetFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&t.revision, "revision", 0, "revision to restore")
	flags.StringVar(&t.time, "time", "", "time to restore, like 2026-11-21T18:00:00Z")
	flags.StringVar(&t.object, "object", "", "name of a full backup to restore as it is, or of a delta backup to restore up to its last revision")
	flags.StringVar(&t.lineage, "lineage", "", "lineage to restore (default: the newest)")
	flags.StringArrayVar(&t.without, "without", nil, "name of an object not to use; repeatable")
}

// target reads the flags. Names of objects to do without may lack the prefix.
func (t targetFlags) target(s *session, c chain.Catalog) (chain.Target, error) {
	target := chain.Target{Revision: t.revision, Name: t.object, Lineage: chain.Lineage(t.lineage)}
	if t.time != "" {
		moment, err := time.Parse(time.RFC3339, t.time)
		if err != nil {
			return chain.Target{}, fmt.Errorf("--time is %q, want a time with a time zone, like 2026-11-21T18:00:00Z", t.time)
		}
		target.Time = moment
	}
	keys, err := s.keys(c, "without", t.without)
	target.Without = keys
	return target, err
}

// keys finds the objects that a flag names, with or without the prefix.
func (s *session) keys(c chain.Catalog, flag string, names []string) ([]string, error) {
	known := map[string]string{}
	for _, r := range rowsOf(c) {
		known[r.key], known[s.name(r.key)] = r.key, r.key
	}
	var keys []string
	for _, name := range names {
		key, found := known[name]
		if !found {
			return nil, fmt.Errorf("--%s: there is no object %q; `backup show` prints their names", flag, name)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func planCommand(s *session) *cobra.Command {
	var flags targetFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what a restore of the newest or the named state would read",
		Example: `  agent backup plan --store s3://backups?region=eu-central-1 --prefix default/demo
  agent backup plan --store s3://backups?region=eu-central-1 --prefix default/demo --time 2026-11-21T18:00:00Z`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.read(cmd.Context())
			if err != nil {
				return err
			}
			target, err := flags.target(s, c)
			if err != nil {
				return err
			}
			p, err := c.Plan(target)
			if err != nil {
				return answered(err)
			}
			if s.json() {
				return s.printJSON(p)
			}
			return s.printPlan(p)
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

// answered makes an answer of what the backups say no to. A target that contradicts itself was no question.
func answered(err error) error {
	if errors.Is(err, chain.ErrTarget) {
		return err
	}
	return no(err)
}

func (s *session) printPlan(p chain.Plan) error {
	rows := []row{fullRow(p.Full)}
	bytes := p.Full.Size
	for _, d := range p.Deltas {
		rows = append(rows, deltaRow(d))
		bytes += d.Size
	}
	if err := s.printObjects(rows, true); err != nil {
		return err
	}
	words := fmt.Sprintf("%s, %s, to revision %d of lineage %s", objects(len(rows)), size(bytes), p.Reach, p.Full.Lineage)
	switch {
	case p.Revision != 0 && !p.Until.IsZero():
		words += fmt.Sprintf(", cut after revision %d and at %s, whichever comes first", p.Revision, stamp(p.Until))
	case p.Revision != 0:
		words += fmt.Sprintf(", cut after revision %d", p.Revision)
	case !p.Until.IsZero():
		words += fmt.Sprintf(" at the most, cut at %s", stamp(p.Until))
	}
	if _, err := fmt.Fprintln(s.out, words); err != nil {
		return err
	}
	for _, note := range p.Notes {
		if _, err := fmt.Fprintln(s.out, "note:", note); err != nil {
			return err
		}
	}
	return nil
}
