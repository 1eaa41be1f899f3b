package membership

import "github.com/etcd-druid/druid/internal/rules"

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

const (
	anyCourse    = CourseOn | CourseBack
	anyAnnounced = AnnouncedNone | AnnouncedThis | AnnouncedOther
	anyLogState  = LogReadable | LogOld | LogTooLong | LogUnknown
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
	Firm rules.Answer
	// Whole: every member is a voter, and tells its state.
	Whole     rules.Answer
	Course    Course
	Announced Announced
	// Reached: a member runs the minor already to which the announced downgrade, or the one that is asked for, goes.
	Reached rules.Answer
	// Storage: the storage of all members that run a later minor has the format of the one that is asked for.
	Storage rules.Answer
	Log     LogState
}

// UpgradeVerdict is what the leader's agent does about an order.
type UpgradeVerdict string

// The verdicts.
const (
	// UpgradeWait leaves the order without an answer.
	UpgradeWait UpgradeVerdict = "Wait"
	// UpgradeTell answers why the members are not compared yet.
	UpgradeTell UpgradeVerdict = "Tell"
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

// UpgradeDecision names the rule too.
type UpgradeDecision struct {
	Verdict   UpgradeVerdict
	Rule, Why string
}

type upgradeRule struct {
	name      string
	firm      rules.Answer
	whole     rules.Answer
	course    Course
	announced Announced
	reached   rules.Answer
	storage   rules.Answer
	log       LogState
	verdict   UpgradeVerdict
	why       string
}

// upgrades is the whole policy on an order to compare the members while their version is changed. First match wins.
var upgrades = []upgradeRule{
	{"record-not-firm", rules.No | rules.Unknown, anyAnswer, anyCourse, anyAnnounced, anyAnswer, anyAnswer, anyLogState, UpgradeWait,
		"what may be another group's order is not answered"},
	{"members-not-heard", rules.Yes, rules.No | rules.Unknown, anyCourse, anyAnnounced, anyAnswer, anyAnswer, anyLogState, UpgradeTell,
		"a member does not answer, or does not vote"},
	{"announced-in-vain", rules.Yes, rules.Yes, CourseOn, AnnouncedThis | AnnouncedOther, rules.No, anyAnswer, anyLogState, UpgradeCancel,
		"nobody runs the earlier minor, and nobody is to"},
	{"announced-another", rules.Yes, rules.Yes, CourseBack, AnnouncedOther, rules.No, anyAnswer, anyLogState, UpgradeCancel,
		"another downgrade was announced before"},
	{"announce", rules.Yes, rules.Yes, CourseBack, AnnouncedNone, rules.No, anyAnswer, anyLogState, UpgradeAnnounce,
		"etcd lets an earlier minor join only when it was told before"},
	{"storage-of-later-minor", rules.Yes, rules.Yes, CourseBack, anyAnnounced, anyAnswer, rules.No | rules.Unknown, anyLogState, UpgradeTell,
		"etcd has not brought the storage of all members to the earlier minor yet"},
	{"log-too-long", rules.Yes, rules.Yes, CourseOn, anyAnnounced, anyAnswer, anyAnswer, LogTooLong, UpgradeAwaitEdit,
		"etcd does not start on a log that was written by the minor before the last, and spec.etcd.snapshotCount is too large for the members to leave it behind: set it to 100000 or less"},
	{"log-not-known", rules.Yes, rules.Yes, CourseOn, anyAnnounced, anyAnswer, anyAnswer, LogUnknown, UpgradeTell,
		"a member's agent does not say yet after how many entries its etcd takes a snapshot"},
	{"log-of-earlier-minor", rules.Yes, rules.Yes, CourseOn, anyAnnounced, anyAnswer, anyAnswer, LogOld, UpgradePassLog,
		"etcd does not start on a log that was written by the minor before the last"},
	{"compare", rules.Yes, rules.Yes, anyCourse, anyAnnounced, anyAnswer, anyAnswer, anyLogState, UpgradeCompare,
		"all members answer, and none is in the way of another"},
}

func (r upgradeRule) matches(f UpgradeFacts) bool {
	return r.firm&f.Firm != 0 && r.whole&f.Whole != 0 && r.course&f.Course != 0 && r.announced&f.Announced != 0 &&
		r.reached&f.Reached != 0 && r.storage&f.Storage != 0 && r.log&f.Log != 0
}

// DecideUpgrade says what the leader's agent does about an order.
func DecideUpgrade(f UpgradeFacts) UpgradeDecision {
	for _, r := range upgrades {
		if r.matches(f) {
			return UpgradeDecision{r.verdict, r.name, r.why}
		}
	}
	return UpgradeDecision{UpgradeWait, "uncovered", "no rule covers it"}
}
