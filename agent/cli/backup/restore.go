package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// targetFlags select the state to restore.
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

// target reads the flags. Names of objects can omit the prefix.
func (t targetFlags) target(s *session, c catalog.Catalog) (catalog.Target, error) {
	target := catalog.Target{Revision: t.revision, Name: t.object, Lineage: catalog.Lineage(t.lineage)}
	if t.time != "" {
		moment, err := time.Parse(time.RFC3339, t.time)
		if err != nil {
			return catalog.Target{}, fmt.Errorf("--time is %q, want a time with a time zone, like 2026-11-21T18:00:00Z", t.time)
		}
		target.Time = moment
	}
	keys, err := s.keys(c, "without", t.without)
	target.Without = keys
	return target, err
}

// keys finds the objects that a flag names, with or without the prefix.
func (s *session) keys(c catalog.Catalog, flag string, names []string) ([]string, error) {
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

// answered marks an error as a negative answer if the backups cause it. A target that contradicts itself is an
// ordinary error.
func answered(err error) error {
	if errors.Is(err, catalog.ErrTarget) {
		return err
	}
	return no(err)
}

func (s *session) printPlan(p catalog.Plan) error {
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
		words += fmt.Sprintf(", cut off after revision %d or at %s, whichever comes first", p.Revision, timestamp(p.Until))
	case p.Revision != 0:
		words += fmt.Sprintf(", cut off after revision %d", p.Revision)
	case !p.Until.IsZero():
		words += fmt.Sprintf(" at most, cut off at %s", timestamp(p.Until))
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

// restored is what `restore` prints.
type restored struct {
	Plan      catalog.Plan `json:"plan,omitzero"`
	File      string       `json:"file,omitempty"`
	DataDir   string       `json:"dataDir"`
	Revision  int64        `json:"revision"`
	Bumped    int64        `json:"bumped"`
	Events    int64        `json:"events"`
	Size      int64        `json:"size"`
	Leases    int          `json:"leases"`
	Guessed   int          `json:"guessed"`
	ClusterID string       `json:"clusterID"`
	MemberID  string       `json:"memberID"`
}

func restoreCommand(s *session) *cobra.Command {
	var flags targetFlags
	var config restore.Config
	var file string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Create a data directory of etcd from backups",
		Long: `Create the data directory of one member of a new cluster. The directory must not exist, and appears complete or not at all.
An etcd with the same name and peer URLs that starts on it serves the restored data.

Clients that saw later revisions of the old cluster miss changes unless you raise the revision with --bump. For a cluster of
several members, run this for each of them with the same --initial-cluster and a new --initial-cluster-token. To restore a
cluster that druid runs, use spec.bootstrap.restore instead.

With --file, restore a file that ` + "`etcdctl snapshot save`" + ` wrote. For a local file use --store dir:///its/directory --file its.name`,
		Example: `  agent backup restore --store s3://backups?region=eu-central-1 --prefix default/demo --data-dir /var/lib/etcd --etcd-version 3.6
  agent backup restore --store dir:///old --file snapshot.db --data-dir /var/lib/etcd --etcd-version 3.6`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := complete(&config); err != nil {
				return err
			}
			shown := newProgress(cmd.ErrOrStderr())
			config.Store, config.Progress = s.store, shown.report
			var result restore.Result
			var plan catalog.Plan
			if file != "" {
				result, err = s.restoreFile(cmd.Context(), config, file)
			} else {
				result, plan, err = s.restoreBackup(cmd.Context(), config, flags)
			}
			shown.end()
			if err != nil {
				return err
			}
			return s.printRestored(restored{
				Plan: plan, File: file, DataDir: config.DataDir, Revision: result.Revision, Bumped: result.Bumped, Events: result.Events, Size: result.Size,
				Leases: result.Leases, Guessed: result.Guessed, ClusterID: fmt.Sprintf("%x", result.ClusterID), MemberID: fmt.Sprintf("%x", result.MemberID),
			})
		},
	}
	flags.add(cmd.Flags())
	own := cmd.Flags()
	own.StringVar(&file, "file", "", "key of a file that etcdctl snapshot save wrote, instead of backups")
	for _, target := range []string{"revision", "time", "object", "lineage", "without"} {
		cmd.MarkFlagsMutuallyExclusive("file", target)
	}
	own.StringVar(&config.DataDir, "data-dir", "", "directory to create, etcd's --data-dir")
	own.StringVar(&config.EtcdVersion, "etcd-version", "", "version of the etcd that will use it, like 3.6")
	own.StringVar(&config.Name, "member", "default", "name of the member, etcd's --name")
	own.StringSliceVar(&config.PeerURLs, "initial-advertise-peer-urls", []string{"http://localhost:2380"}, "peer URLs of the member, as in etcd's flag")
	own.StringVar(&config.InitialCluster, "initial-cluster", "", "as in etcd's flag (default: only this member)")
	own.StringVar(&config.Token, "initial-cluster-token", "", "as in etcd's flag (default: random)")
	own.Int64Var(&config.Bump, "bump", 0, "number to add to the revision; earlier revisions are marked compacted")
	own.BoolVar(&config.ClearAlarms, "clear-alarms", false, "drop raised NOSPACE alarms; CORRUPT stays")
	for _, name := range []string{"data-dir", "etcd-version"} {
		_ = cmd.MarkFlagRequired(name) // it fails only for a flag that does not exist
	}
	return cmd
}

func (s *session) restoreBackup(ctx context.Context, config restore.Config, flags targetFlags) (restore.Result, catalog.Plan, error) {
	c, err := s.read(ctx)
	if err != nil {
		return restore.Result{}, catalog.Plan{}, err
	}
	target, err := flags.target(s, c)
	if err != nil {
		return restore.Result{}, catalog.Plan{}, err
	}
	return planAndRestore(c, target, func(p catalog.Plan) (restore.Result, error) {
		config.Plan = p
		return restore.Run(ctx, config)
	})
}

func (s *session) restoreFile(ctx context.Context, config restore.Config, key string) (result restore.Result, err error) {
	if s.prefix != "" {
		return result, errors.New("--prefix must not be combined with --file, which is the complete key relative to --store")
	}
	if config.File, err = store.Find(ctx, s.store, key); errors.Is(err, store.ErrAbsent) {
		return result, no(err)
	}
	if err != nil {
		return result, err
	}
	if result, err = restore.Run(ctx, config); err != nil {
		return result, refused(err)
	}
	return result, nil
}

// complete sets the defaults of fields that the user did not set.
func complete(c *restore.Config) (err error) {
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if c.InitialCluster == "" {
		var urls []string
		for _, url := range c.PeerURLs {
			urls = append(urls, c.Name+"="+url)
		}
		c.InitialCluster = strings.Join(urls, ",")
	}
	if c.Token == "" {
		c.Token = "restored-" + rand.Text()
	}
	return nil
}

// planAndRestore tries an older full backup while the planned one has more than the target.
func planAndRestore(c catalog.Catalog, t catalog.Target, run func(catalog.Plan) (restore.Result, error)) (restore.Result, catalog.Plan, error) {
	var tooNew error
	for {
		p, err := c.Plan(t)
		switch {
		case err != nil && tooNew != nil:
			return restore.Result{}, p, no(fmt.Errorf("%w; a restore without it is not possible either: %w", tooNew, err))
		case err != nil:
			return restore.Result{}, p, answered(err)
		}
		result, err := run(p)
		switch {
		case err == nil:
			return result, p, nil
		case !errors.Is(err, restore.ErrTooNew):
			return restore.Result{}, p, refused(err)
		case tooNew == nil:
			tooNew = err
		}
		t = t.Except(p.Full.Key)
	}
}

// refused marks an error as a negative answer if the backups cause it.
func refused(err error) error {
	_, full := errors.AsType[*snapshot.DamagedError](err)
	_, file := errors.AsType[*snapshot.FileError](err)
	_, part := errors.AsType[*delta.DamagedError](err)
	_, gap := errors.AsType[*restore.GapError](err)
	for _, is := range []error{restore.ErrShort, restore.ErrSwapped, restore.ErrFork, store.ErrDamaged} {
		full = full || errors.Is(err, is)
	}
	if full || file || part || gap {
		return no(err)
	}
	return err
}

func (s *session) printRestored(r restored) error {
	if s.json() {
		return s.printJSON(r)
	}
	words := fmt.Sprintf("%s has revision %d of lineage %s: %s, %d events applied", r.DataDir, r.Revision, r.Plan.Full.Lineage, size(r.Size), r.Events)
	if r.File != "" {
		words = fmt.Sprintf("%s has revision %d of file %s: %s", r.DataDir, r.Revision, r.File, size(r.Size))
	}
	if r.Bumped != r.Revision {
		words += fmt.Sprintf("; etcd starts at revision %d", r.Bumped)
	}
	lines := []string{words}
	if r.Guessed > 0 {
		lines = append(lines, fmt.Sprintf("note: the time to live of %d leases is unknown", r.Guessed))
	}
	for _, note := range r.Plan.Notes {
		lines = append(lines, "note: "+note)
	}
	_, err := fmt.Fprintln(s.out, strings.Join(lines, "\n"))
	return err
}
