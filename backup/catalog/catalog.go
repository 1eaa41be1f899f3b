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

// Full is a full snapshot in the store.
type Full struct {
	Lineage Lineage `json:"lineage"`
	Key     string  `json:"key"`
	// Revision is a lower bound: everything up to it is in the snapshot, and what was written while it was taken may be.
	Revision int64 `json:"revision"`
	// At is when it was taken, in milliseconds, by the clock of who took it, or when the store had it, where that clock was ahead. It orders
	// nothing.
	At time.Time `json:"at"`
	// Size of the object in bytes.
	Size int64 `json:"size"`
	// Final is one that someone asked for as the last one, before the cluster is given up, paused or moved. It is a full like
	// any other, but retention never lets it go.
	Final bool `json:"final,omitempty"`
}

// Delta holds the whole revisions From to To, both included.
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

// History is what the store holds of one lineage: fulls ordered by revision, deltas by their first revision.
type History struct {
	Lineage Lineage `json:"lineage"`
	// Bootstrap is nil where there is no record of it, or one that cannot be understood; BootstrapProblem then says what is wrong.
	Formation        *Formation `json:"formation,omitempty"`
	BootstrapProblem string     `json:"formationProblem,omitempty"`
	Fulls            []Full     `json:"fulls,omitempty"`
	Deltas           []Delta    `json:"deltas,omitempty"`
	// Strangers are keys below the lineage that no backup has. They are informed of, and never touched.
	UnknownObjects []string `json:"strangers,omitempty"`
}

// Catalog is what one listing reports a cluster's backups. Histories are in the order of their lineages.
type Catalog struct {
	Prefix    string    `json:"prefix"`
	Histories []History `json:"histories"`
	// Strangers are keys below the prefix and of no lineage.
	UnknownObjects []string `json:"strangers,omitempty"`
	// Newest is when the last object below the prefix became visible, by the store's clock; zero where there is none.
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

// Holds says whether a full or a delta of this key is there.
func (c Catalog) Holds(key string) bool {
	return slices.ContainsFunc(c.Histories, func(h History) bool {
		return slices.ContainsFunc(h.Fulls, func(f Full) bool { return f.Key == key }) ||
			slices.ContainsFunc(h.Deltas, func(d Delta) bool { return d.Key == key })
	})
}

// LastSaved is the last revision that can be reached without a gap from the newest full; 0 means that there is none, and
// a full must be made.
func (h History) LastSaved() int64 {
	if len(h.Fulls) == 0 {
		return 0
	}
	newest := slices.MaxFunc(h.Fulls, compareFulls)
	return h.walk(newest, newest.At, unlimited).reach
}

// compareFulls is a total order within a lineage: of fulls with one revision the later counts as newer.
func compareFulls(a, b Full) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
}

func compareDeltas(a, b Delta) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), a.At.Compare(b.At), cmp.Compare(a.Key, b.Key))
}

// inOrder is a copy of list in its order, or list itself where it has it.
func inOrder[T any](list []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(list, compare) {
		return list
	}
	list = slices.Clone(list)
	slices.SortFunc(list, compare)
	return list
}

// Lineage names one unforked history: <epoch:08x>-<nonce>. A new one begins whenever a cluster is formed again, also by a
// restore.
type Lineage string

const (
	epochDigits = 8
	maxNonce    = 64
)

// ParseLineage refuses what is no lineage: eight lower-case hexadecimal digits, a dash, and up to 64 lower-case letters
// and digits.
func ParseLineage(s string) (Lineage, error) {
	epoch, nonce, found := strings.Cut(s, "-")
	if !found || len(epoch) != epochDigits || !isHex(epoch) || nonce == "" || len(nonce) > maxNonce || strings.ContainsFunc(nonce, isNoNonce) {
		return "", fmt.Errorf("%q is no lineage: want <epoch, %d hexadecimal digits>-<nonce>", s, epochDigits)
	}
	return Lineage(s), nil
}

// Epoch counts the bootstraps of the cluster; 0 for what ParseLineage would refuse.
func (l Lineage) Epoch() uint32 {
	epoch, _, _ := strings.Cut(string(l), "-")
	n, err := strconv.ParseUint(epoch, 16, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// Compare orders by epoch, and by nonce where two histories claim the same epoch; that order means nothing, but is one.
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
