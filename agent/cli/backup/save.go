package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

const (
	// lookForSecrets is the pause between two looks for a mounted Secret that is missing.
	lookForSecrets = 2 * time.Second
	// maxLag is how long the kubelet may take to bring a new Secret into a running Pod: its sync period of a minute, and
	// the age of its cache.
	maxLag = 2 * time.Minute
)

// saving are the flags of save and drop.
type saving struct {
	*session
	member                 dialing
	lineage, cluster, uid  string
	restored               bool
	timeout, secretsWithin time.Duration
	secrets                map[string]string
	result, request, key   string
	log                    *slog.Logger
}

// dialing are the flags of a connection to etcd.
type dialing struct {
	endpoint, tlsDir, host string
}

func (d *dialing) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&d.endpoint, "endpoint", "", "URL of the client port of etcd")
	flags.StringVar(&d.tlsDir, "tls-dir", "", "directory with ca.crt, client.crt and client.key")
	flags.StringVar(&d.host, "tls-name", "", "DNS name in the certificate of the members (default: the host of --endpoint)")
	_ = cmd.MarkFlagRequired("endpoint") // it fails only for a flag that does not exist
}

func (d *dialing) transport() (t transport.Transport) {
	if d.tlsDir == "" {
		return t
	}
	host := d.host
	if u, err := url.Parse(d.endpoint); err == nil && host == "" {
		host = u.Hostname()
	}
	t.Client = certificates.Dial(d.tlsDir, host)
	return t
}

func saveCommand(s *session) *cobra.Command {
	f := &saving{session: s}
	cmd := &cobra.Command{
		Use:   "save",
		Short: "Save one full backup of a running etcd",
		Long: `Stream the database of a running etcd into the store, as the agents do, and read the object back. The Pod of an
EtcdSnapshot with spec.store runs this command. The command fails if it does not succeed within --timeout.`,
		Example: `  agent backup save --store s3://backups?region=eu-central-1 --prefix default/demo --lineage 00000001-abc \
    --endpoint https://demo-client.default.svc:2379 --tls-dir /tls`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: f.prepare,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), func(ctx context.Context, save *backups.Save) (backups.Artifact, error) { return save.Run(ctx) })
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.lineage, "lineage", "", "lineage of the cluster")
	_ = cmd.MarkFlagRequired("lineage") // it fails only for a flag that does not exist
	f.member.add(cmd)
	flags.StringVar(&f.cluster, "cluster-id", "", "ID of the cluster in hexadecimal; another one is not saved")
	flags.StringVar(&f.uid, "cluster-uid", "", "UID of the EtcdCluster")
	flags.BoolVar(&f.restored, "restored", false, "the cluster was restored from a backup: write no record of the lineage, because its parent is unknown")
	return cmd
}

func dropCommand(s *session) *cobra.Command {
	f := &saving{session: s}
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Delete one full backup that `save` saved",
		Long: `Delete one full backup. The command refuses if the store has delta backups of the lineage, which need full backups.
An EtcdSnapshot with spec.store and deletionPolicy Delete runs this command when it is deleted.`,
		Example: `  agent backup drop --store s3://backups?region=eu-central-1 --prefix default/demo --key <key>`,
		Args:    cobra.NoArgs, PersistentPreRunE: f.prepare,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), func(ctx context.Context, save *backups.Save) (backups.Artifact, error) { return save.Drop(ctx, f.key) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.key, "key", "", "key of the object, as status.artifact of the EtcdSnapshot has it")
	_ = cmd.MarkFlagRequired("key") // it fails only for a flag that does not exist
	return cmd
}

func (f *saving) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.timeout, "timeout", time.Hour, "longest time until it succeeds")
	flags.DurationVar(&f.secretsWithin, "wait-for-secrets", maxLag, "longest time until the files of mounted Secrets exist")
	flags.StringToStringVar(&f.secrets, "secret", nil, "path of a mounted Secret and its name, for messages; repeatable")
	flags.StringVar(&f.result, "result", "", "file for the result as JSON, for a Pod its termination message")
	flags.StringVar(&f.request, "request", "", "UID of the EtcdSnapshot, for the result")
}

// prepare replaces the preparation of the other commands: a store that cannot be opened is part of the result.
func (f *saving) prepare(cmd *cobra.Command, _ []string) error {
	f.out = cmd.OutOrStdout()
	f.log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	return nil
}

// run does the work, and writes its result.
func (f *saving) run(ctx context.Context, work func(context.Context, *backups.Save) (backups.Artifact, error)) error {
	a := leases.SnapshotAnswer{UID: f.request, Phase: leases.SnapshotFailed, Started: time.Now().UTC()}
	limited, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	artifact, err := f.perform(limited, work)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("not done within %s: %w", f.timeout, err)
	}
	if err != nil && ctx.Err() != nil {
		return err // what stopped it starts it again
	}
	a.Finished, a.Object, a.URI, a.Revision, a.Size = time.Now().UTC(), artifact.Key, artifact.URI, artifact.Revision, artifact.Size
	a.SHA256, a.StorageVersion = artifact.SHA256, artifact.StorageVersion
	if err == nil {
		a.Phase = leases.SnapshotSucceeded
		_, _ = fmt.Fprintf(f.out, "%s: revision %d, %s\n", a.URI, a.Revision, size(a.Size))
	} else {
		err = errors.New(f.named(err.Error()))
		a.Error = err.Error()
	}
	return errors.Join(err, f.report(a))
}

func (f *saving) report(a leases.SnapshotAnswer) error {
	if f.result == "" {
		return nil
	}
	raw, err := a.Result()
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.result, raw, 0o600); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (f *saving) perform(ctx context.Context, work func(context.Context, *backups.Save) (backups.Artifact, error)) (backups.Artifact, error) {
	var lineage catalog.Lineage
	var err error
	if f.key == "" { // the key of a backup names its lineage
		if lineage, err = catalog.ParseLineage(f.lineage); err != nil {
			return backups.Artifact{}, fmt.Errorf("--lineage: %w", err)
		}
	}
	clusterID, err := leases.ParseID(f.cluster)
	if err != nil {
		return backups.Artifact{}, fmt.Errorf("--cluster-id: %w", err)
	}
	c, err := f.config("store")
	if err != nil {
		return backups.Artifact{}, err
	}
	if err := f.awaitSecrets(ctx, c); err != nil {
		return backups.Artifact{}, err
	}
	s, err := f.open(ctx, "store")
	if err != nil {
		return backups.Artifact{}, err
	}
	save := &backups.Save{
		Endpoint: f.member.endpoint, Store: s, URI: c.URI, Prefix: f.prefix, Restored: f.restored, Log: f.log,
		Self: backups.Identity{Lineage: lineage, ClusterID: clusterID, ClusterUID: f.uid},
	}
	clients := transport.NewClients(f.member.transport())
	defer clients.Close()
	save.Dial = clients.Dial
	return work(ctx, save)
}

// awaitSecrets waits for the files of mounted Secrets. A Secret that does not exist yet is an empty directory, and the
// kubelet fills it when the Secret is created.
func (f *saving) awaitSecrets(ctx context.Context, c store.Config) error {
	ctx, cancel := context.WithTimeout(ctx, f.secretsWithin)
	defer cancel()
	ticker := time.NewTicker(lookForSecrets)
	defer ticker.Stop()
	for {
		err := f.missing(c)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// missing returns an error for the first mounted Secret without files, or nil.
func (f *saving) missing(c store.Config) error {
	needed := c.Secrets()
	if f.member.tlsDir != "" {
		needed = append(needed, filepath.Join(f.member.tlsDir, "ca.crt"))
	}
	for _, path := range needed {
		switch there, err := exists(path); {
		case err != nil:
			return fmt.Errorf("look for a mounted Secret: %w", err)
		case !there:
			return fmt.Errorf("%s does not exist, or lacks the entry that the store needs; create it, and then another EtcdSnapshot", path)
		}
	}
	return nil
}

// exists says whether there is a file, or a directory that is not empty.
func exists(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return err == nil, err
	}
	_, err = f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

// named replaces the paths of mounted Secrets by their names, which the user knows.
func (f *saving) named(text string) string {
	paths := make([]string, 0, len(f.secrets))
	for path := range f.secrets {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return len(b) - len(a) })
	for _, path := range paths {
		text = strings.ReplaceAll(text, path, "Secret "+f.secrets[path])
	}
	return text
}
