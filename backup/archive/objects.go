package archive

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/backup/chain"
)

// object is a full or a delta.
type object struct {
	key  string
	size int64
	// revision that it begins with; a full's is its own.
	revision int64
	full     *chain.Full
	delta    *chain.Delta
}

// objectsOf are the objects of a history, oldest first: whatever is cut off at the end leaves a chain.
func objectsOf(h chain.History) []object {
	objects := make([]object, 0, len(h.Fulls)+len(h.Deltas))
	for _, f := range h.Fulls {
		objects = append(objects, object{key: f.Key, size: f.Size, revision: f.Revision, full: &f})
	}
	for i, d := range h.Deltas {
		objects = append(objects, object{key: d.Key, size: d.Size, revision: d.From, delta: &h.Deltas[i]})
	}
	slices.SortStableFunc(objects, func(a, b object) int { return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.key, b.key)) })
	return objects
}
