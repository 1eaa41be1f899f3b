package view

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// verbs begin an action.
var verbs = []string{
	"Add", "Approve", "Bring", "Check", "Correct", "Create", "Decide", "Delete", "Enlarge", "Find", "Install", "Let", "Look", "Raise", "Read", "Remove",
	"Resolve", "Restore", "Resume", "Save", "Set", "Use",
}

// rowOfTools is a row of the table of all conditions that druid can write, which is rendered from the tables of package druid/policy.
var rowOfTools = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| `(\\w+)` \\|")

// TestEachReasonHasAnAction: what a user is to do about a condition is an action, and not the message again.
func TestEachReasonHasAnAction(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/conditions-and-reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := rowOfTools.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 100 {
		t.Fatalf("%d rows could be read", len(rows))
	}
	used := map[string]bool{}
	for _, row := range rows {
		c := Condition{Type: row[1], Status: row[2], Reason: row[3], Message: "Member a-1: broken."}
		c.Wished = c.Status == "True" && wished[c.Type] == "" || c.Type == v1alpha1.ConditionDegraded && c.Status == "False" || withoutChange[c.Reason]
		v := Cluster{Name: "a", Namespace: "ns", State: StateDegraded, Members: []Member{{Name: "a-1"}}, Conditions: []Condition{c}}
		for _, step := range v.next() {
			used[c.Reason] = true
			verb, _, _ := strings.Cut(step.Do, " ")
			if !slices.Contains(verbs, verb) || !strings.HasSuffix(step.Do, ".") || strings.Contains(step.Do+step.Command, "MEMBER") {
				t.Errorf("%s %s %s: %+v is no action", c.Type, c.Status, c.Reason, step)
			}
		}
	}
	for reason := range remedies {
		if !used[reason] {
			t.Errorf("no condition has the remedy of %s", reason)
		}
	}
}

func TestOneStepPerCause(t *testing.T) {
	const command = "kubectl -n ns describe pod a-1"
	of := func(kind, status, reason, message string) Condition {
		return Condition{Type: kind, Status: status, Reason: reason, Message: message, Docs: "page"}
	}
	progressing := of(v1alpha1.ConditionProgressing, "True", v1alpha1.ReasonRepairingMember, "Member a-1 is being restarted.")
	members := of(v1alpha1.ConditionAllMembersReady, "False", v1alpha1.ReasonMembersNotReady, "Member a-1: disk.")
	degraded := of(v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonMemberCannotStart, "Member a-1: disk; member a-2: disk.")
	backups := of(v1alpha1.ConditionBackupReady, "False", v1alpha1.ReasonDeltaBackupFailed, "Not saved.")
	newer := of(v1alpha1.ConditionDegraded, "True", "New", "Broken.")
	starts := Step{Do: "Correct what keeps member a-1 from starting.", Command: command, Docs: docs + notReady}
	ready := Step{Do: "Find out why member a-1 is not ready.", Command: command, Docs: docs + notReady}
	unready := func(name string) Member { return Member{Name: name, State: string(v1alpha1.MemberNotReady)} }
	for name, c := range map[string]struct {
		members    []Member
		conditions []Condition
		cause      leases.BackupCause
		want       []Step
	}{
		"Degraded has the cause": {[]Member{unready("a-1"), unready("a-2")}, []Condition{progressing, members, degraded}, "", []Step{starts}},
		"Degraded names another member": {[]Member{unready("a-1"), unready("a-3")}, []Condition{members, degraded}, "",
			[]Step{ready, starts}},
		"nothing is known to be wrong": {[]Member{unready("a-1")}, []Condition{progressing, members}, "", []Step{ready}},
		"the message names no member": {nil, []Condition{members}, "",
			[]Step{{Do: "Find out why the member is not ready.", Docs: docs + notReady}}},
		"backups fail": {nil, []Condition{backups}, "", []Step{{Do: "Find out why the backup fails.", Docs: docs + failing}}},
		"backups fail for a known cause": {nil, []Condition{backups}, leases.BackupFull,
			[]Step{{Do: backupRemedies[leases.BackupFull], Docs: docs + failing}}},
		"a reason of a newer druid": {nil, []Condition{newer}, "",
			[]Step{{Do: "Do what condition Degraded says.", Command: "kubectl -n ns describe etcdcluster a", Docs: "page"}}},
	} {
		v := Cluster{Name: "a", Namespace: "ns", State: StateDegraded, Members: c.members, Conditions: c.conditions, Backup: &Backup{Cause: string(c.cause)}}
		if diff := cmp.Diff(c.want, v.next()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The page of messages is rendered from package druid/policy, which the plugin must not link.
func TestRemediesOfBackupsAreThoseOfDruid(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	messages := strings.ToLower(strings.ReplaceAll(string(page), "`", ""))
	for _, cause := range leases.BackupCauses() {
		if do := strings.ToLower(strings.TrimSuffix(backupRemedies[cause], ".")); do == "" || !strings.Contains(messages, "| "+do+" |") {
			t.Errorf("druid has other words than %q about %s", do, cause)
		}
	}
}
