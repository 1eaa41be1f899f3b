package membership

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/rules"
)

// One-bit enums of what a comparison of members rests on.
type (
	// Course of the change of version that is asked for.
	Course uint8
	// Announced is which downgrade etcd itself knows of.
	Announced uint8
	// LogState is what the members' raft logs hold that the next etcd would have to apply.
	LogState uint8
)

// The courses.
const (
	CourseOn   Course = 1 << iota // to a later release, or to one of the same minor
	CourseBack                    // to the minor before
)

// What etcd knows of.
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
	logStateNames  = map[LogState]string{LogReadable: "readable", LogOld: "old", LogTooLong: "old, and seldom cut", LogUnknown: "not known"}
)

func (c Course) String() string    { return courseNames[c] }
func (a Announced) String() string { return announcedNames[a] }
func (l LogState) String() string  { return logStateNames[l] }

// UpgradeFacts are all that DecideUpgrade may look at.
type UpgradeFacts struct {
	// Firm: the record says Formed, is our raft group's, and lists our member.
	Authoritative rules.Answer `fact:"firm record"`
	// Whole: every member is a voter, and reports its state.
	Whole     rules.Answer `fact:"all members vote and answer"`
	Course    Course
	Announced Announced `fact:"downgrade that etcd knows of"`
	// Reached: a member runs the minor already to which the announced downgrade, or the one that is asked for, goes.
	Reached rules.Answer `fact:"a member runs the earlier minor"`
	// Storage: the storage of all members that run a later minor has the format of the one that is asked for.
	Storage rules.Answer `fact:"storage has its format"`
	Log     LogState     `fact:"logs"`
}

// UpgradeVerdict is what the leader's agent does about an order.
type UpgradeVerdict string

// The verdicts.
const (
	// UpgradeWait leaves the order without an answer.
	UpgradeWait UpgradeVerdict = "Wait"
	// UpgradeTell answers why the members are not compared yet.
	UpgradeReport UpgradeVerdict = "Report"
	// UpgradeAwaitEdit answers that the spec is to be edited before the members can be compared, and how.
	UpgradeAwaitEdit UpgradeVerdict = "AwaitEdit"
	// UpgradeAnnounce announces the downgrade to etcd, and UpgradeCancel takes such a word back.
	UpgradeAnnounce UpgradeVerdict = "Announce"
	UpgradeCancel   UpgradeVerdict = "Cancel"
	// UpgradePassLog makes the members' logs longer, so that each takes a snapshot and drops what it wrote before.
	UpgradePassLog UpgradeVerdict = "PassLog"
	// UpgradeCompare compares the members.
	UpgradeCompare UpgradeVerdict = "Compare"
)

// upgrades is the whole policy on an order to compare the members while their version is changed. First match wins.
var upgrades = rules.New(UpgradeWait, []rules.Row[UpgradeFacts, UpgradeVerdict]{
	{Name: "record-not-firm", When: UpgradeFacts{Authoritative: rules.No | rules.Unknown}, Verdict: UpgradeWait,
		Why: "what may be another group's order is not answered"},
	{Name: "members-not-heard", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.No | rules.Unknown}, Verdict: UpgradeReport,
		Why: "a member does not answer, or does not vote"},
	{Name: "announced-in-vain", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Announced: AnnouncedThis | AnnouncedOther, Reached: rules.No}, Verdict: UpgradeCancel,
		Why: "no one runs the earlier minor, and no one is to"},
	{Name: "announced-another", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseBack, Announced: AnnouncedOther, Reached: rules.No}, Verdict: UpgradeCancel,
		Why: "another downgrade was announced before"},
	{Name: "announce", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseBack, Announced: AnnouncedNone, Reached: rules.No}, Verdict: UpgradeAnnounce,
		Why: "etcd lets an earlier minor join only when it was reported before"},
	{Name: "storage-of-later-minor", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseBack, Storage: rules.No | rules.Unknown}, Verdict: UpgradeReport,
		Why: "etcd has not brought the storage of all members to the earlier minor yet"},
	{Name: "log-too-long", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Log: LogTooLong}, Verdict: UpgradeAwaitEdit,
		Why: "etcd does not start on a log that was written by the minor before the last, and spec.etcd.snapshotCount is too large for the members to leave it behind: set it to 100000 or less"},
	{Name: "log-not-known", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Log: LogUnknown}, Verdict: UpgradeReport,
		Why: "a member's agent does not say yet after how many entries its etcd takes a snapshot"},
	{Name: "log-of-earlier-minor", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes, Course: CourseOn, Log: LogOld}, Verdict: UpgradePassLog,
		Why: "etcd does not start on a log that was written by the minor before the last"},
	{Name: "compare", When: UpgradeFacts{Authoritative: rules.Yes, Whole: rules.Yes}, Verdict: UpgradeCompare,
		Why: "all members answer, and none is in the way of another"},
})

// DecideUpgrade says what the leader's agent does about an order.
func DecideUpgrade(f UpgradeFacts) rules.Decision[UpgradeVerdict] { return upgrades.Decide(f) }

// Content is what one member holds at a revision, as far as a hash reports.
type Content struct {
	MemberID uint64
	// Revision that was hashed, and CompactRevision, below which history is gone. Hashes report something of each other only where both
	// are equal.
	Revision, CompactRevision int64
	Hash                      uint32
}

// ReadContent asks the member at endpoint for a hash of all that it holds at revision. It reads its whole database.
func ReadContent(ctx context.Context, client *clientv3.Client, endpoint string, clusterID uint64, revision int64) (Content, error) {
	r, err := client.HashKV(ctx, endpoint, revision)
	if err != nil {
		return Content{}, fmt.Errorf("hash of revision %d: %w", revision, err)
	}
	if id := r.Header.GetClusterId(); id != clusterID {
		return Content{}, fmt.Errorf("hash of revision %d: %w: %x", revision, ErrOtherCluster, id)
	}
	// 3.5 does not say which revision it hashed.
	if r.HashRevision != 0 && r.HashRevision != revision {
		return Content{}, fmt.Errorf("hash of revision %d: the member hashed revision %d", revision, r.HashRevision)
	}
	return Content{MemberID: r.Header.GetMemberId(), Revision: revision, CompactRevision: r.CompactRevision, Hash: r.Hash}, nil
}

// Sameness of what members hold.
type Sameness string

// Different only where two hashes that can be compared differ; Incomparable where one is of another revision or compaction.
const (
	Same         Sameness = "Same"
	Different    Sameness = "Different"
	Incomparable Sameness = "Incomparable"
)

// Compare what members hold. No content at all is Incomparable.
func Compare(all []Content) Sameness {
	if len(all) == 0 {
		return Incomparable
	}
	found := Same
	for _, c := range all[1:] {
		switch {
		case c.Revision != all[0].Revision || c.CompactRevision != all[0].CompactRevision:
			found = Incomparable
		case c.Hash != all[0].Hash:
			return Different
		}
	}
	return found
}

// EnableDowngrade announces to the cluster that its members are going to run target, as major.minor: from then on it lets
// them join, and brings the storage of all members to that format. It is checked by etcd first, and may be called again.
func EnableDowngrade(ctx context.Context, client *clientv3.Client, target string) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeValidate, target+".0"); err != nil {
		return fmt.Errorf("validate the downgrade to %s: %w", target, err)
	}
	if _, err := client.Downgrade(ctx, clientv3.DowngradeEnable, target+".0"); err != nil {
		return fmt.Errorf("enable the downgrade to %s: %w", target, err)
	}
	return nil
}

// CancelDowngrade takes the announcement back.
func CancelDowngrade(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Downgrade(ctx, clientv3.DowngradeCancel, ""); err != nil {
		return fmt.Errorf("cancel the downgrade: %w", err)
	}
	return nil
}

// entriesAtOnce are so many that the members write many of them to disk by one fsync, and so few that clients do not notice.
const entriesAtOnce = 64

// LengthenLog makes the raft log longer by n entries that change nothing: etcd answers a list of its alarms through raft. It ends early
// with the first error.
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
		return fmt.Errorf("make the raft log longer: %w", err)
	}
	return ctx.Err() // that of each has ended with Wait
}
