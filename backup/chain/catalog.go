package chain

import (
	"cmp"
	"slices"
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
	// Bootstrap is nil where there is no record of it, or one that cannot be understood; BirthProblem then says what is wrong.
	Formation        *Formation `json:"birth,omitempty"`
	BootstrapProblem string     `json:"birthProblem,omitempty"`
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
