package chain

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	bootstrapName = "lineage.json"
	fullDir       = "full"
	deltaDir      = "delta"
	fullSuffix    = ".snap.zst"
	deltaSuffix   = ".delta.zst"
	// finalSuffix is another one than a full's, so that retention of a release that does not know it leaves the object alone.
	finalSuffix = ".final.zst"
)

// FullKey names a full snapshot. revision is a proven lower bound of what it holds, and at when it was taken.
func FullKey(prefix string, l Lineage, revision int64, at time.Time) string {
	return join(prefix, fmt.Sprintf("%s/%s/%016x-%d%s", l, fullDir, revision, at.UnixMilli(), fullSuffix))
}

// FinalKey names a full as FullKey does, and says that it is a final one.
func FinalKey(prefix string, l Lineage, revision int64, at time.Time) string {
	return join(prefix, fmt.Sprintf("%s/%s/%016x-%d%s", l, fullDir, revision, at.UnixMilli(), finalSuffix))
}

// IsFinal reports the key of a full whether it is a final one.
func IsFinal(key string) bool { return strings.HasSuffix(key, finalSuffix) }

// DeltaKey names a delta that holds the whole revisions from to to, both included, and was closed at at.
func DeltaKey(prefix string, l Lineage, from, to int64, at time.Time) string {
	return join(prefix, fmt.Sprintf("%s/%s/%016x-%016x-%d%s", l, deltaDir, from, to, at.UnixMilli(), deltaSuffix))
}

// BootstrapKey names the record of a lineage's bootstrap.
func BootstrapKey(prefix string, l Lineage) string { return join(prefix, string(l)+"/"+bootstrapName) }

// ParseFull reads a name that FullKey or FinalKey made. ok is false for every other name, also one that means the same number
// written differently: what is not ours is not touched.
func ParseFull(prefix, key string) (f Full, ok bool) {
	l, rest, ok := split(prefix, key)
	if !ok {
		return Full{}, false
	}
	m := fullPattern.FindStringSubmatch(rest)
	if m == nil {
		return Full{}, false
	}
	f = Full{Lineage: l, Key: key, Revision: revision(m[1]), At: millis(m[2]), Final: IsFinal(key)}
	name := FullKey
	if f.Final {
		name = FinalKey
	}
	return f, f.Revision > 0 && name(prefix, l, f.Revision, f.At) == key
}

// ParseDelta reads a name that DeltaKey made, as ParseFull does.
func ParseDelta(prefix, key string) (d Delta, ok bool) {
	l, rest, ok := split(prefix, key)
	if !ok {
		return Delta{}, false
	}
	m := deltaPattern.FindStringSubmatch(rest)
	if m == nil {
		return Delta{}, false
	}
	d = Delta{Lineage: l, Key: key, From: revision(m[1]), To: revision(m[2]), At: millis(m[3])}
	return d, d.From > 0 && d.From <= d.To && DeltaKey(prefix, l, d.From, d.To, d.At) == key
}

var (
	fullPattern  = regexp.MustCompile(`^` + fullDir + `/([0-9a-f]{16})-([0-9]{1,15})(?:` + regexp.QuoteMeta(fullSuffix) + `|` + regexp.QuoteMeta(finalSuffix) + `)$`)
	deltaPattern = regexp.MustCompile(`^` + deltaDir + `/([0-9a-f]{16})-([0-9a-f]{16})-([0-9]{1,15})` + regexp.QuoteMeta(deltaSuffix) + `$`)
)

// split takes the lineage from a key below prefix.
func split(prefix, key string) (l Lineage, rest string, ok bool) {
	below, ok := strings.CutPrefix(key, join(prefix, ""))
	if !ok {
		return "", "", false
	}
	name, rest, ok := strings.Cut(below, "/")
	if !ok {
		return "", "", false
	}
	l, err := ParseLineage(name)
	return l, rest, err == nil
}

// join puts name below prefix; an empty prefix is the store itself.
func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "/" + name
}

// revision reads what the pattern matched; 0, which is no revision, where it is beyond what etcd counts with.
func revision(hex string) int64 {
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil || n > math.MaxInt64 {
		return 0
	}
	return int64(n)
}

// millis reads what the pattern matched: at most 15 digits, which is the year 33658.
func millis(decimal string) time.Time {
	n, err := strconv.ParseInt(decimal, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
