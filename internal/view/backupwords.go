package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/etcd-druid/druid/leases"
)

// nearExpiry is how long before its end a certificate is shown as a problem. druid renews its own long before.
const nearExpiry = 14 * 24 * time.Hour

// SavedWord says how old the last moment is up to which everything is saved. b can be nil.
func (b *Backup) SavedWord(now time.Time) Word {
	switch {
	case b == nil:
		return Word{Text: "no backup"}
	case b.Error != "":
		return Word{Ago(b.SavedAt, now), Bad}
	default:
		return Word{Text: Ago(b.SavedAt, now)}
	}
}

// WindowWord says how long the restorable window is. b can be nil.
func (b *Backup) WindowWord(now time.Time) Word {
	switch {
	case b == nil:
		return Word{Text: "no backup"}
	case b.RestorableFrom == nil:
		return Word{Text: Unknown}
	default:
		return Word{Text: "since " + Ago(b.RestorableFrom, now)}
	}
}

// VerifiedWord says how old the last verification is. b can be nil.
func (b *Backup) VerifiedWord(now time.Time) Word {
	switch {
	case b == nil:
		return Word{Text: "no backup"}
	case b.Verdict == string(leases.VerdictBroken):
		return Word{"broken, " + Ago(b.VerifiedAt, now), Bad}
	case b.Verdict == NeverVerified:
		return Word{Text: "never"}
	default:
		return Word{Text: Ago(b.VerifiedAt, now)}
	}
}

// Lines say all that is known of the backups. b can be nil.
func (b *Backup) Lines(now time.Time) (all []Word) {
	if b == nil {
		return []Word{{"none: spec.backup is not set", Middle}}
	}
	if b.Error != "" {
		all = append(all, Word{"✖ failing: " + b.Error, Bad})
	}
	restorable := Word{Text: "restorable: " + b.restorable(now)}
	if b.Saved == nil {
		return append(all, Word{Text: Unknown + ": no Lease reports a backup"}, restorable)
	}
	all = append(all, restorable,
		Word{Text: "saved up to revision " + Number(b.Saved) + ", " + Ago(b.SavedAt, now) + b.unsaved()},
		Word{Text: "last full backup " + Ago(b.FullAt, now) + ", revision " + Number(b.FullRevision) + ", " + Size(b.FullSize)})
	switch b.Verdict {
	case string(leases.VerdictVerified):
		return append(all, Word{Text: "verified " + Ago(b.VerifiedAt, now) + " up to revision " + Number(b.VerifiedRevision)})
	case string(leases.VerdictBroken):
		return append(all, Word{"✖ broken, found " + Ago(b.VerifiedAt, now) + ": " + b.Trouble, Bad})
	case NeverVerified:
		return append(all, Word{Text: "never verified"})
	default:
		return append(all, Word{Text: "verification " + Unknown})
	}
}

// restorable is the window of the states that can be restored.
func (b *Backup) restorable(now time.Time) string {
	if b.RestorableFrom == nil {
		return Unknown
	}
	return "from " + timeAndAge(b.RestorableFrom, now) + " to " + timeAndAge(b.RestorableTo, now)
}

func (b *Backup) unsaved() string {
	if b.Unsaved == 0 {
		return ""
	}
	return fmt.Sprintf("; the oldest write that is not saved was %s old then", duration.HumanDuration(seconds(b.Unsaved)))
}

// Word says how far TLS is turned on, and until when the certificates are valid.
func (c Certificate) Word(now time.Time) Word {
	w := Word{Text: fmt.Sprintf("%s: TLS %s, certificates until %s", c.Plane, Or(c.Stage), TimeUntil(c.NotAfter, now))}
	for _, at := range []*time.Time{c.NotAfter, c.AuthorityNotAfter} {
		if at != nil && at.Sub(now) < nearExpiry {
			w.Tone = Bad
		}
	}
	if c.AuthorityNotAfter != nil {
		w.Text += ", authority until " + TimeUntil(c.AuthorityNotAfter, now)
	}
	return w
}
