package versions

import (
	"fmt"
	"strconv"
	"strings"
)

// Version of etcd 3.
type Version struct{ Minor, Patch int }

// Parse reads major.minor.patch of etcd 3, without a leading v. ok is false for everything else.
func Parse(s string) (v Version, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 || parts[0] != "3" {
		return Version{}, false
	}
	minor, err := strconv.ParseUint(parts[1], 10, 16)
	if err != nil {
		return Version{}, false
	}
	patch, err := strconv.ParseUint(parts[2], 10, 16)
	return Version{int(minor), int(patch)}, err == nil
}

// String is major.minor.patch.
func (v Version) String() string { return fmt.Sprintf("3.%d.%d", v.Minor, v.Patch) }

// Line is major.minor, as etcd's downgrade API and its storage versions have it.
func (v Version) Line() string { return fmt.Sprintf("3.%d", v.Minor) }

// Verdict on a release or on a step.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "Allowed"
	// Warned: it is done, and a person is reported what is known of it.
	Warned  Verdict = "Warned"
	Refused Verdict = "Refused"
)

// Judgement is a verdict, the rule that gave it, why, and where that is known from.
type Judgement struct {
	Verdict           Verdict
	Rule, Why, Source string
}

// Oldest and Newest minor that is supported.
const (
	Oldest = 5
	Newest = 7
)
