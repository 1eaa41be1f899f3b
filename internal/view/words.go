package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Unknown stands for what is not known.
const Unknown = "unknown"

// Tone says how a text is meant. The text says it too, for readers who see no colors.
type Tone string

// The tones.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Bad   Tone = "bad"
	// Middle is a text that may need a look.
	Middle Tone = "middle"
)

// Word is a text with a tone.
type Word struct {
	Text string
	Tone Tone
}

// Tone is that of a state with this health, and Mark its sign.
func (h Health) Tone() Tone { return map[Health]Tone{Well: Good, NotWell: Bad, Unclear: Middle}[h] }

// Mark is a sign for readers without colors.
func (h Health) Mark() string { return map[Health]string{Well: "●", NotWell: "✖", Unclear: "?"}[h] }

// Or is the text, or unknown.
func Or(text string) string { return cmp.Or(text, Unknown) }

// Age is how long ago a time was, without a word around it.
func Age(t, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }

// Ago says how long ago a time was.
func Ago(t *time.Time, now time.Time) string {
	if t == nil {
		return Unknown
	}
	if age := now.Sub(*t); age >= 0 {
		return duration.HumanDuration(age) + " ago"
	}
	return "just now"
}

// seconds is a duration from the view model, without the error of a floating-point number.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// Stamp is a time as users write it on the command line.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// timeAndAge is a time, and how long ago it was.
func timeAndAge(t *time.Time, now time.Time) string {
	if t == nil {
		return Unknown
	}
	return Stamp(*t) + " (" + Ago(t, now) + ")"
}

// TimeUntil says when a time is.
func TimeUntil(t *time.Time, now time.Time) string {
	if t == nil {
		return Unknown
	}
	left := t.Sub(now)
	if left < 0 {
		return "expired " + duration.HumanDuration(-left) + " ago"
	}
	return t.UTC().Format(time.DateOnly) + " (in " + duration.HumanDuration(left) + ")"
}

// Number is a number with separators.
func Number[T ~int64 | ~uint64](n *T) string {
	if n == nil {
		return Unknown
	}
	digits := strconv.FormatUint(uint64(*n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Size is a number of bytes.
func Size(n *int64) string {
	if n == nil {
		return Unknown
	}
	left, units := float64(*n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; left >= 1024 && i < len(units)-1; i++ {
		left /= 1024
	}
	if left < 10 && i > 0 {
		return strconv.FormatFloat(left, 'f', 1, 64) + " " + units[i]
	}
	return strconv.FormatFloat(left, 'f', 0, 64) + " " + units[i]
}

// Sentence begins with a capital letter, and ends with a period.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	if first, rest, _ := strings.Cut(text, " "); strings.ToLower(first) == first && !strings.ContainsAny(first, "-.:/0123456789") &&
		first != "etcd" && first != "druid" {
		text = strings.TrimSpace(strings.ToUpper(first[:1]) + first[1:] + " " + rest)
	}
	if strings.HasSuffix(text, "?") {
		return text
	}
	return strings.TrimSuffix(text, ".") + "."
}

// ReadyWord is how many members are ready, of how many.
func (v Cluster) ReadyWord() string {
	if v.Ready == nil {
		return fmt.Sprintf("%s/%d", Unknown, v.Replicas)
	}
	return fmt.Sprintf("%d/%d", *v.Ready, v.Replicas)
}

// LeaderWord is the member that leads, as its own agent reports.
func (v Cluster) LeaderWord() string {
	switch {
	case v.Leader != "":
		return v.Leader
	case v.State == StateQuorumLost, v.State == StatePaused, v.State == StateForming:
		return "none"
	default:
		return Unknown
	}
}

// SpecWord says whether druid accepted the spec.
func (v Cluster) SpecWord() Word {
	switch v.Accepted {
	case v.Generation:
		return Word{Text: fmt.Sprintf("generation %d, accepted", v.Generation)}
	case 0:
		return Word{fmt.Sprintf("generation %d waits, druid accepted none yet", v.Generation), Middle}
	}
	return Word{fmt.Sprintf("generation %d waits, druid accepted generation %d", v.Generation, v.Accepted), Middle}
}

// StateWord is the state, and since when.
func (v Cluster) StateWord(now time.Time) Word {
	text := v.Health.Mark() + " " + string(v.State)
	if v.Since != nil {
		text += " for " + Age(*v.Since, now)
	}
	return Word{text, v.Health.Tone()}
}

// Explanation is the message of the condition that decided, or why the state is what it is.
func (v Cluster) Explanation() string { return Sentence(cmp.Or(v.Message, v.Why)) }

// NextWord is what to say if there is no step.
func (v Cluster) NextWord() Word {
	if v.Health == Well {
		return Word{"Nothing to do.", Good}
	}
	return Word{"Wait: " + v.Why + ".", Middle}
}

// DatabaseWord is the size of the largest database, and the quota.
func (v Cluster) DatabaseWord() string {
	var largest *int64
	for _, m := range v.Members {
		if m.DBSize != nil && (largest == nil || *m.DBSize > *largest) {
			largest = m.DBSize
		}
	}
	return Size(largest) + " / " + Size(&v.Quota)
}

// Sentence says what could not be read.
func (u Unread) Sentence() string {
	return u.Kind + " could not be read, and what they report is unknown: " + u.Problem
}
