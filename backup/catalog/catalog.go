package catalog

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Full is a full backup in the store.
type Full struct {
	Lineage Lineage `json:"lineage"`
	Key     string  `json:"key"`
	// Revision is a lower bound. The backup holds everything up to it and may hold writes that were made while it was
	// taken.
	Revision int64 `json:"revision"`
	// At is when it was taken, in milliseconds, by the clock of who took it, or when the store had it, where that clock was ahead. It orders
	// nothing.
	At time.Time `json:"at"`
	// Size of the object in bytes.
	Size int64 `json:"size"`
	// Final marks a final backup, requested before the cluster is deleted, paused or moved. It is a full backup like
	// any other, but retention never deletes it.
	Final bool `json:"final,omitempty"`
}

// Delta is a delta backup. It holds the complete revisions From to To, both included.
type Delta struct {
	Lineage Lineage `json:"lineage"`
	Key     string  `json:"key"`
	From    int64   `json:"from"`
	To      int64   `json:"to"`
	// At is when it was closed, by the clock of who recorded it, or when the store had it, where that clock was ahead: what it holds was
	// written before. It orders nothing.
	At time.Time `json:"at"`
	// Size of the object in bytes.
	Size int64 `json:"size"`
}

// History is what the store holds of one lineage: full backups ordered by revision, delta backups by their first
// revision.
type History struct {
	Lineage Lineage `json:"lineage"`
	// Formation is nil if there is no bootstrap record or an invalid one. BootstrapProblem then describes the problem.
	Formation        *Formation `json:"formation,omitempty"`
	BootstrapProblem string     `json:"formationProblem,omitempty"`
	Fulls            []Full     `json:"fulls,omitempty"`
	Deltas           []Delta    `json:"deltas,omitempty"`
	// UnknownObjects are keys below the lineage that are not backups. They are reported and never changed.
	UnknownObjects []string `json:"unknownObjects,omitempty"`
}

// Catalog is what one listing of the store shows about the backups of a cluster. Histories are in the order of their
// lineages.
type Catalog struct {
	Prefix    string    `json:"prefix"`
	Histories []History `json:"histories"`
	// UnknownObjects are keys below the prefix that belong to no lineage.
	UnknownObjects []string `json:"unknownObjects,omitempty"`
	// Newest is when the last object below the prefix became visible, by the store's clock. It is zero if there is
	// none.
	Newest time.Time `json:"newest,omitzero"`
}

// History finds a lineage.
func (c Catalog) History(l Lineage) (History, bool) {
	i := slices.IndexFunc(c.Histories, func(h History) bool { return h.Lineage == l })
	if i < 0 {
		return History{}, false
	}
	return c.Histories[i], true
}

// Holds reports whether the catalog has a full or delta backup with this key.
func (c Catalog) Holds(key string) bool {
	return slices.ContainsFunc(c.Histories, func(h History) bool {
		return slices.ContainsFunc(h.Fulls, func(f Full) bool { return f.Key == key }) ||
			slices.ContainsFunc(h.Deltas, func(d Delta) bool { return d.Key == key })
	})
}

// LastSaved returns the last revision that can be reached without a gap from the newest full backup. 0 means that
// there is no full backup, so that one must be made.
func (h History) LastSaved() int64 {
	if len(h.Fulls) == 0 {
		return 0
	}
	newest := slices.MaxFunc(h.Fulls, compareFulls)
	return h.walk(newest, newest.At, unlimited).reach
}

// compareFulls is a total order within a lineage. Of full backups with the same revision, the later one counts as
// newer.
func compareFulls(a, b Full) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
}

func compareDeltas(a, b Delta) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
}

// inOrder returns a sorted copy of list, or list itself if it is sorted.
func inOrder[T any](list []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(list, compare) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, compare)
	return list
}

// Lineage names one unforked history: <epoch:08x>-<nonce>. A new one begins with each bootstrap, also with a restore.
type Lineage string

const (
	epochDigits = 8
	maxNonce    = 64
)

// ParseLineage accepts eight lower-case hexadecimal digits, a dash, and up to 64 lower-case letters and digits.
func ParseLineage(s string) (Lineage, error) {
	epoch, nonce, found := strings.Cut(s, "-")
	if !found || len(epoch) != epochDigits || !isHex(epoch) || nonce == "" || len(nonce) > maxNonce || strings.ContainsFunc(nonce, isNoNonce) {
		return "", fmt.Errorf("%q is not a lineage: want <epoch, %d hexadecimal digits>-<nonce>", s, epochDigits)
	}
	return Lineage(s), nil
}

// Epoch returns the number of the bootstrap, or 0 if ParseLineage does not accept l.
func (l Lineage) Epoch() uint32 {
	epoch, _, _ := strings.Cut(string(l), "-")
	n, err := strconv.ParseUint(epoch, 16, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// Compare orders by epoch. If two histories claim the same epoch, it orders by nonce: that order is arbitrary, but
// total.
func (l Lineage) Compare(m Lineage) int {
	return cmp.Or(cmp.Compare(l.Epoch(), m.Epoch()), cmp.Compare(l, m))
}

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

func isNoNonce(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }

const (
	bootstrapName = "lineage.json"
	fullDir       = "full"
	deltaDir      = "delta"
	fullSuffix    = ".snap.zst"
	deltaSuffix   = ".delta.zst"
	// finalSuffix differs from the suffix of other full backups, so that the retention of a release that does not know
	// it ignores the object.
	finalSuffix = ".final.zst"
)

// FullKey returns the key of a full backup. revision is a verified lower bound of what it holds, and at is when it was
// taken.
func FullKey(prefix string, l Lineage, revision int64, at time.Time) string {
	return join(prefix, fmt.Sprintf("%s/%s/%016x-%d%s", l, fullDir, revision, at.UnixMilli(), fullSuffix))
}

// FinalKey returns the key of a final backup.
func FinalKey(prefix string, l Lineage, revision int64, at time.Time) string {
	return join(prefix, fmt.Sprintf("%s/%s/%016x-%d%s", l, fullDir, revision, at.UnixMilli(), finalSuffix))
}

// IsFinal reports whether the key of a full backup is that of a final one.
func IsFinal(key string) bool { return strings.HasSuffix(key, finalSuffix) }

// DeltaKey returns the key of a delta backup that holds the complete revisions from to to, both included, and was
// closed at at.
func DeltaKey(prefix string, l Lineage, from, to int64, at time.Time) string {
	return join(prefix, fmt.Sprintf("%s/%s/%016x-%016x-%d%s", l, deltaDir, from, to, at.UnixMilli(), deltaSuffix))
}

// BootstrapKey returns the key of the bootstrap record of a lineage.
func BootstrapKey(prefix string, l Lineage) string { return join(prefix, string(l)+"/"+bootstrapName) }

// ParseFull parses a key that FullKey or FinalKey made. ok is false for every other key, also for one that writes the
// same number differently: druid does not touch objects that it did not name.
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

// ParseDelta parses a key that DeltaKey made, with the same strictness as ParseFull.
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
	fullPattern = regexp.MustCompile(`^` + fullDir + `/([0-9a-f]{16})-([0-9]{1,15})(?:` + regexp.QuoteMeta(fullSuffix) + `|` +
		regexp.QuoteMeta(finalSuffix) + `)$`)
	deltaPattern = regexp.MustCompile(`^` + deltaDir + `/([0-9a-f]{16})-([0-9a-f]{16})-([0-9]{1,15})` + regexp.QuoteMeta(deltaSuffix) + `$`)
)

// split separates the lineage from the rest of a key below prefix.
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

// join puts name below prefix. An empty prefix is the root of the store.
func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "/" + name
}

// revision parses what the pattern matched. It returns 0, which is not a revision, for a number beyond the range of
// etcd.
func revision(hex string) int64 {
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil || n > math.MaxInt64 {
		return 0
	}
	return int64(n)
}

// millis parses what the pattern matched: at most 15 digits, which is the year 33658.
func millis(decimal string) time.Time {
	n, err := strconv.ParseInt(decimal, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
