package pages

import "regexp"

// Folders of the pages whose commands tests run, below docs. All commands of these pages are run or marked.
var Folders = []string{"tutorials", "how-to/install", "how-to/rescue"}

// ReadMe is the first page that people see, from docs.
const ReadMe = "../README.md"

// Further are the pages outside of these folders whose commands are run or marked too.
var Further = []string{ReadMe, "how-to/run/keep-volume.md"}

// Stories has the pages with commands, below docs, and the story that runs the commands of each.
var Stories = map[string]string{
	"tutorials/first-cluster.md":        "TestTutorialOfTheFirstClusterIsTrue",
	"tutorials/back-up-and-restore.md":  "TestTutorialOfBackupAndRestoreIsTrue",
	"tutorials/lose-a-disk.md":          "TestTutorialOfALostDiskIsTrue",
	"how-to/rescue/backups-failing.md":  rescueBackups,
	"how-to/rescue/data-differs.md":     "TestDataOfThreeMembersThatDiffers",
	"how-to/rescue/manual-actions.md":   rescue,
	"how-to/rescue/nospace.md":          rescue,
	"how-to/rescue/pod-not-ready.md":    rescue,
	"how-to/rescue/quarantined-data.md": rescue,
	"how-to/rescue/quorum-lost.md":      rescue,
	"how-to/rescue/stuck-scale-down.md": rescueBackups,
	"how-to/rescue/stuck-upgrade.md":    rescue,
	"how-to/rescue/node-lost.md":        "TestPageOfALostNodeIsTrue",
	"how-to/run/keep-volume.md":         "TestVolumeOfReplacedMemberKept",
}

// Tests has the pages whose commands a test of test/connect runs: on a real API server and a real etcd, without kubelet and druid.
var Tests = map[string]string{
	"tutorials/connect-an-app.md": "TestTutorialOfAnAppIsTrue",
}

// Test is a test function, in a directory of this repository.
type Test struct{ Dir, Name string }

// Elsewhere has the pages whose blocks another test runs, or compares with what it renders.
var Elsewhere = map[string]Test{
	ReadMe:                               {"test/pages", "TestReadMeHasTheSample"},
	"how-to/install/check.md":            {"internal/plugin", "TestThePageShowsWhatIsPrinted"},
	"how-to/install/gitops.md":           {"manifests/chart", "TestPageIsTrue"},
	"how-to/install/limit-namespaces.md": {"manifests", "TestKustomizeLimitsNamespaces"},
	"how-to/install/release.md":          {"test/e2e", "TestReleaseUpgradeAndRollback"},
}

const (
	rescue        = "TestPagesOfRescueAreTrue"
	rescueBackups = "TestPagesOfFailingBackupsAreTrue"
)

// Replaced has all that a story replaces in the commands of the pages, and what it stands for. The words of lose-a-disk.md are
// what the quickstart printed once, and the page says that its reader has others.
var Replaced = map[string]string{
	"<ID>":                         "the access key ID of the bucket",
	"<key>":                        "the secret access key of the bucket",
	"<member>":                     "the name of the member that the page is about",
	"<member ID>":                  "the ID of the member with the good data",
	"<node>":                       "the name of the node that the page is about",
	"<version>":                    "the version before the change",
	"demo-lgmkl":                   "the name of the member whose volume is kept",
	"demo-qtd87":                   "the name of the leader",
	"demo-svg4g":                   "the name of the follower that loses its disk",
	"go run ./test/rig kubectl --": "kubectl, as lose-a-disk.md says",
}

// placeholder is a word in a command that a reader has to replace, such as <member>.
var placeholder = regexp.MustCompile(`<[A-Za-z][A-Za-z-]*>`)
