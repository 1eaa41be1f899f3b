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
	if b.Saved == nil {
		return append(all, Word{Text: Unknown + ": no Lease reports a backup"})
	}
	all = append(all,
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

func (b *Backup) unsaved() string {
	if b.Unsaved == 0 {
		return ""
	}
	return fmt.Sprintf("; the oldest write that is not saved was %s old then", duration.HumanDuration(time.Duration(b.Unsaved*float64(time.Second))))
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
