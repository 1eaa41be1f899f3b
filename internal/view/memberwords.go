package view

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// RoleWord is what the agent last reported.
func (m Member) RoleWord() string {
	switch {
	case m.Role == "":
		return Unknown
	case m.Renewed != nil && !*m.Renewed:
		return "was " + m.Role
	default:
		return m.Role
	}
}

// RenewedWord says when the agent last renewed the Lease.
func (m Member) RenewedWord(now time.Time) Word {
	switch {
	case m.Renewed == nil:
		return Word{Text: Unknown}
	case m.RenewTime == nil:
		return Word{"never", Bad}
	case !*m.Renewed:
		return Word{Ago(m.RenewTime, now), Bad}
	default:
		return Word{Text: Ago(m.RenewTime, now)}
	}
}

// StateWord is the state that druid wrote, with its reason if the member is not ready.
func (m Member) StateWord() Word {
	w := Word{Or(m.State), Middle}
	switch v1alpha1.MemberState(m.State) {
	case v1alpha1.MemberReady:
		w.Tone = Plain
	case v1alpha1.MemberNotReady:
		w.Tone = Bad
	default: // unknown or paused
	}
	if m.Reason != "" && m.State != string(v1alpha1.MemberReady) && m.Reason != m.State {
		w.Text += " (" + m.Reason + ")"
	}
	return w
}

// NodeWord is the node, and whether it is not ready.
func (m Member) NodeWord() Word {
	if m.NodeReady != "" && m.NodeReady != string(metav1.ConditionTrue) {
		return Word{m.Node + " (not ready)", Bad}
	}
	return Word{Text: Or(m.Node)}
}

// diskTones are those of the verdicts and states of a disk that are not good.
var diskTones = map[string]Tone{
	string(leases.SpeedSlow): Middle, string(leases.SpeedVerySlow): Bad, string(leases.DiskEmpty): Middle, string(leases.DiskStale): Middle,
	string(leases.DiskCorrupt): Bad, string(leases.DiskForeign): Bad, string(leases.DiskNewer): Bad, string(leases.DiskFailing): Bad,
}

// DiskVerdict is how fast the disk is, or what it holds while etcd does not run.
func (m Member) DiskVerdict() Word {
	word := cmp.Or(m.DiskState, m.Disk)
	return Word{Or(word), diskTones[word]}
}

// DiskWord is the verdict with the measured time, for tables with enough space.
func (m Member) DiskWord() Word {
	w := m.DiskVerdict()
	if m.DiskState == "" && m.FsyncP99 != nil {
		w.Text += " (" + seconds(*m.FsyncP99).String() + ")"
	}
	return w
}

// Notes are what a member reports that has no column.
func (m Member) Notes() (all []string) {
	for _, note := range []struct{ title, text string }{
		{"", m.Message}, {"etcd does not start: ", m.Waits}, {"alarm: ", m.Alarm}, {"etcd refuses its agent: ", m.Refused}, {"it leaves: ", m.Leaving},
	} {
		if note.text != "" && !(note.title != "" && Sentence(note.text) == Sentence(m.Message)) {
			all = append(all, note.title+note.text)
		}
	}
	return all
}

// Fine says that the member is as it should be: it is ready or paused, and reports no problem.
func (m Member) Fine() bool {
	return m.State == string(v1alpha1.MemberPaused) || m.State == string(v1alpha1.MemberReady) && m.Waits == "" && m.Alarm == "" && m.Refused == "" &&
		m.Disk != string(leases.SpeedVerySlow)
}
