package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// leadershipPause is the pause between two looks at who leads. An election takes about as long.
	leadershipPause = time.Second
	// statusTimeout bounds one look. etcd answers in milliseconds.
	statusTimeout = 5 * time.Second
)

// keeping are the flags of run.
type keeping struct {
	*session
	member    dialing
	lineage   string
	schedule  string
	period    time.Duration
	maxBytes  int64 // of compressed changes
	log       *slog.Logger
	clients   *transport.Clients
	clusterID uint64
}

func runCommand(s *session) *cobra.Command {
	f := &keeping{session: s}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Save full backups and all changes of an etcd that druid does not manage, until the command is ended",
		Long: `Save full backups by a schedule, and every change between them, with the same code as the agents. The command needs no
Kubernetes. Run it next to each member of a cluster, with the same --prefix: it saves while its member is the leader. It retries
until it is ended, and then saves the last changes.

The command deletes and verifies nothing: run ` + "`gc --delete` and `verify`" + ` by a schedule of your own.`,
		Example: `  agent backup run --store s3://backups?region=eu-central-1 --prefix prod/etcd --endpoint https://127.0.0.1:2379 --tls-dir /tls`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.member.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.lineage, "lineage", "", "lineage of the cluster, with a higher number after a restore (default: 00000001-<cluster ID>)")
	flags.StringVar(&f.schedule, "full-schedule", "0 0 * * *", "when full backups are saved, as five fields of cron in UTC")
	flags.DurationVar(&f.period, "delta-period", 10*time.Second, "longest time until a change is saved")
	flags.Int64Var(&f.maxBytes, "delta-max-bytes", 8<<20, "size of compressed changes, in bytes, that are saved before the period ends")
	return cmd
}

func (f *keeping) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	f.log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	place, err := f.config("store")
	if err != nil {
		return err
	}
	raw, err := json.Marshal(place)
	if err != nil {
		return fmt.Errorf("encode the configuration of the store: %w", err)
	}
	b := &config.Backup{
		Store: raw, Prefix: f.prefix, Full: config.Full{Schedule: f.schedule}, Delta: config.Delta{Period: config.Duration(f.period), MaxBytes: f.maxBytes},
		Retention: config.Retention{Count: 1}, // it is not applied
	}
	if err := b.Validate(); err != nil {
		return fmt.Errorf("check --prefix, --full-schedule, --delta-period and --delta-max-bytes: %w", err)
	}
	if f.member.endpoint == "" {
		return errors.New("--endpoint is empty, want the URL of the client port of etcd")
	}
	if f.lineage != "" {
		if _, err := catalog.ParseLineage(f.lineage); err != nil {
			return fmt.Errorf("--lineage: %w", err)
		}
	}
	dial := f.member.transport()
	f.clients = transport.NewClients(dial)
	defer f.clients.Close()
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
	metrics, err := backups.NewMetrics(prometheus.NewRegistry(), decisions)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return f.whileItLeads(ctx, func(ctx context.Context, self backups.Identity) error {
		duty := backups.New(backups.Options{
			Leases: leases.NewStore(noLeases{}, "none"), Dial: f.clients.Dial, Listen: dial.Listener, Local: f.member.endpoint, Open: open.Open, Metrics: metrics,
			Self: func() (backups.Identity, bool) { return self, true }, Log: f.log,
		})
		duty.Configure(b)
		return duty.Run(ctx)
	})
}

// whileItLeads saves while the member is the leader. It ends with ctx, or with an error if another cluster answers.
func (f *keeping) whileItLeads(ctx context.Context, save func(context.Context, backups.Identity) error) error {
	var stop func() // nil while nothing is saved
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	tick := time.NewTicker(leadershipPause)
	defer tick.Stop()
	for failing := false; ; {
		self, leads, err := f.look(ctx)
		switch {
		case errors.Is(err, errOtherCluster):
			return err
		case err != nil && !failing && ctx.Err() == nil:
			f.log.WarnContext(ctx, "member did not answer, retrying", "endpoint", f.member.endpoint, "err", err)
		case err == nil && leads && stop == nil:
			stop = begin(ctx, func(ctx context.Context) error { return save(ctx, self) })
		case err == nil && !leads && stop != nil:
			stop()
			stop = nil
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// begin runs work. stop ends it and waits.
func begin(ctx context.Context, work func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return work(ctx) })
	return func() {
		cancel()
		_ = group.Wait() // the duty retries, and returns no error
	}
}

// errOtherCluster ends the command: the backups of two clusters in one place would be unusable.
var errOtherCluster = errors.New("another cluster answers")

// look returns what the member saves, and whether it leads.
func (f *keeping) look(ctx context.Context) (self backups.Identity, leads bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	client, done, err := f.clients.Dial(ctx, f.member.endpoint)
	if err != nil {
		return self, false, err
	}
	defer func() { done(err) }()
	status, err := membership.ReadStatus(ctx, client, f.member.endpoint)
	if err != nil {
		return self, false, err
	}
	if f.clusterID != 0 && status.ClusterID != f.clusterID {
		return self, false, fmt.Errorf("%w at %s: %s, and the backups are of %s; start the command again with another --prefix or --lineage",
			errOtherCluster, f.member.endpoint, leases.FormatID(status.ClusterID), leases.FormatID(f.clusterID))
	}
	f.clusterID = status.ClusterID
	self = backups.Identity{Lineage: catalog.Lineage(f.lineage), ClusterID: status.ClusterID, MemberID: status.MemberID}
	if self.Lineage == "" {
		self.Lineage = catalog.Lineage(fmt.Sprintf("00000001-%016x", status.ClusterID))
	}
	return self, status.Role == membership.RoleLeader, nil
}

// noLeases stands for the Leases of a Kubernetes that is not there. The state of the backups is in the log instead.
type noLeases struct{}

var errNoLeases = errors.New("there is no Kubernetes, and no Lease")

func (noLeases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return nil, errNoLeases
}

func (noLeases) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{}, nil
}

func (noLeases) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errNoLeases
}
