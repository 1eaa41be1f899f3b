package membership

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/rules"
)

// One-bit enums of the facts for a comparison of members.
type (
	// Course is the direction of the requested version change.
	Course uint8
	// Announced is which downgrade etcd itself knows of.
	Announced uint8
	// LogState is what the members' raft logs contain that the next etcd version would have to apply.
	LogState uint8
)

// The directions of a version change.
const (
	CourseOn   Course = 1 << iota // to a later release, or to one of the same minor
	CourseBack                    // to the minor before
)

// The downgrades that etcd knows of.
const (
	AnnouncedNone Announced = 1 << iota
	AnnouncedThis           // the downgrade that is asked for
	AnnouncedOther
)

// The states of the logs.
const (
	LogReadable LogState = 1 << iota // nothing that it cannot read
	LogOld                           // perhaps what the minor before the one that runs now wrote, not covered by a snapshot on disk yet
	LogTooLong                       // the same, and an etcd takes a snapshot too seldom for that to be waited for
	LogUnknown                       // after how many entries each etcd takes a snapshot is not known
)

var (
	courseNames    = map[Course]string{CourseOn: "on", CourseBack: "back"}
	announcedNames = map[Announced]string{AnnouncedNone: "none", AnnouncedThis: "this", AnnouncedOther: "another"}
	logStateNames  = map[LogState]string{LogReadable: "readable", LogOld: "old", LogTooLong: "old, and snapshots are rare", LogUnknown: "not known"}
)

func (c Course) String() string    { return courseNames[c] }
func (a Announced) String() string { return announcedNames[a] }
func (l LogState) String() string  { return logStateNames[l] }

// UpgradeFacts is the complete input of DecideUpgrade.
type UpgradeFacts struct {
	// Authoritative: the record has the phase Formed, belongs to this raft group, and lists the agent's own member.
	Authoritative rules.Answer `fact:"record authoritative"`
	// Whole: every member is a voter and reports its status.
	Whole     rules.Answer `fact:"all members vote and answer"`
	Course    Course
	Announced Announced `fact:"downgrade that etcd knows of"`
	// Reached: a member already runs the minor version of the announced or the requested downgrade.
	Reached rules.Answer `fact:"a member runs the earlier minor"`
	// Storage: the storage of all members that run a later minor version has the format of the requested one.
	Storage rules.Answer `fact:"storage has its format"`
	Log     LogState     `fact:"logs"`
}

// UpgradeVerdict is the next step of the leader's agent for a request.
type UpgradeVerdict string

// The verdicts.
const (
	// UpgradeWait leaves the request without an answer.
	UpgradeWait UpgradeVerdict = "Wait"
	// UpgradeReport answers why the members are not compared yet.
	UpgradeReport UpgradeVerdict = "Report"
	// UpgradeAwaitEdit answers which edit of the spec is needed before the members can be compared.
	UpgradeAwaitEdit UpgradeVerdict = "AwaitEdit"
	// UpgradeAnnounce announces the downgrade to etcd, and UpgradeCancel cancels an announcement.
	UpgradeAnnounce UpgradeVerdict = "Announce"
	UpgradeCancel   UpgradeVerdict = "Cancel"
	// UpgradePassLog adds entries to the raft log, so that each member takes a raft snapshot and drops its earlier
	// entries.
	UpgradePassLog UpgradeVerdict = "PassLog"
	// UpgradeCompare compares the members.
	UpgradeCompare UpgradeVerdict = "Compare"
)

// upgrades is the complete policy on a request to compare the members during a version change. The first match wins.
var upgrades = rules.New(UpgradeWait, []rules.Row[UpgradeFacts, UpgradeVerdict]{
	{Name: "record-not-authoritative", When: UpgradeFacts{Authoritative: rules.No | rules.Unknown}, Verdict: UpgradeWait,
		Why: "the request might belong to another raft group, so it is not answered"},
	{Name: "members-not-renewing", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.No | rules.Unknown}, Verdict: UpgradeReport,
		Why: "a member does not respond or is not a voter"},
	{Name: "downgrade-not-requested", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn,
		Announced: AnnouncedThis | AnnouncedOther, Reached: rules.No},
		Verdict: UpgradeCancel,
		Why:     "no member runs the announced minor version, and no downgrade is requested"},
	{Name: "announced-another", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseBack, Announced: AnnouncedOther, Reached: rules.No},
		Verdict: UpgradeCancel,
		Why:     "another downgrade was announced before"},
	{Name: "announce", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseBack, Announced: AnnouncedNone, Reached: rules.No},
		Verdict: UpgradeAnnounce,
		Why:     "etcd lets an earlier minor version join only after the downgrade was announced"},
	{Name: "storage-of-later-minor", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseBack, Storage: rules.No | rules.Unknown},
		Verdict: UpgradeReport,
		Why:     "etcd has not converted the storage of all members to the earlier minor version yet"},
	{Name: "log-too-long", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Log: LogTooLong}, Verdict: UpgradeAwaitEdit,
		Why: "etcd 3.7 does not start on a log with entries of etcd 3.5, and spec.etcd.snapshotCount is too large for the members to drop them; " +
			"set it to 100000 or less"},
	{Name: "log-not-known", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Log: LogUnknown}, Verdict: UpgradeReport,
		Why: "a member's agent has not reported yet after how many entries its etcd takes a raft snapshot"},
	{Name: "log-of-earlier-minor", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Log: LogOld}, Verdict: UpgradePassLog,
		Why: "etcd 3.7 does not start on a log with entries of etcd 3.5, so new entries are written until the members drop them"},
	{Name: "compare", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes}, Verdict: UpgradeCompare,
		Why: "all members respond, and nothing else is to be done before"},
})

// DecideUpgrade returns the next step of the leader's agent for a request.
func DecideUpgrade(f UpgradeFacts) rules.Decision[UpgradeVerdict] { return upgrades.Decide(f) }

// EnableDowngrade announces to the cluster that its members will run target, as major.minor. etcd then lets such
// members join, and converts the storage of all members to that format. etcd validates the request first. The call can
// be repeated.
func EnableDowngrade(ctx context.Context, client *clientv3.Client, target string) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeValidate, target+".0"); err != nil {
		return fmt.Errorf("validate the downgrade to %s: %w", target, err)
	}
	if _, err := client.Downgrade(ctx, clientv3.DowngradeEnable, target+".0"); err != nil {
		return fmt.Errorf("enable the downgrade to %s: %w", target, err)
	}
	return nil
}

// CancelDowngrade cancels the announcement.
func CancelDowngrade(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeCancel, ""); err != nil {
		return fmt.Errorf("cancel the downgrade: %w", err)
	}
	return nil
}

// entriesAtOnce is large enough that the members write many entries with one fsync, and small enough that clients do
// not notice.
const entriesAtOnce = 64

// LengthenLog adds n entries to the raft log that change nothing: etcd answers a request for its alarms through raft.
// It ends early with the first error.
func LengthenLog(ctx context.Context, client *clientv3.Client, n uint64) error {
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(entriesAtOnce)
	for range n {
		if each.Err() != nil {
			break
		}
		group.Go(func() error {
			_, err := client.AlarmList(each)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write entries to the raft log: %w", err)
	}
	return ctx.Err() // that of each has ended with Wait
}
