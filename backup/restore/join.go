package restore

import (
	"fmt"
	"time"

	"github.com/etcd-druid/druid/backup/delta"
)

// joint decides what of the deltas follows on what is there. Overlap is legal, a hole is not: two leaders that back up at
// once cut the history at different revisions, but it must be the same history, and digests of single revisions prove
// that where two objects meet.
type joint struct {
	// target is the last revision to take, 0 for all; until the last moment, zero for all.
	target int64
	until  time.Time
	// revision is the last one that is there, digest its digest (zero where no one knows), and object who reported both.
	revision int64
	digest   delta.Digest
	object   string
	// done: what follows is beyond target or until.
	done bool

	// Of the delta at hand: its key, its header, the revision before it was entered, and the digest of that revision as
	// this delta has it.
	key    string
	closed time.Time // when it was closed at the latest, zero where that is not known: no record of it is younger
	header delta.Header
	base   int64
	sum    delta.Digester
}

// needs reports whether revisions up to to add anything.
func (j *joint) needs(to int64) bool {
	return !j.done && to > j.revision && (j.target == 0 || j.revision < j.target)
}

// enter begins a delta.
func (j *joint) enter(key string, closed time.Time, h delta.Header) error {
	if h.From > j.revision+1 {
		return &GapError{From: j.revision + 1, To: h.From - 1, After: j.object, Before: key}
	}
	j.key, j.closed, j.header, j.base = key, closed, h, j.revision
	j.sum.Reset()
	if h.From == j.base+1 {
		return j.agree(h.Before)
	}
	return nil
}

// take returns the part of the records that follows on what is there. Records come in order, and a revision may come in
// several calls.
func (j *joint) take(records []delta.Record) ([]delta.Record, error) {
	first := 0
	for first < len(records) && records[first].Revision <= j.base {
		if r := records[first]; r.Revision == j.base {
			j.sum.Add(r.Key, r.Value)
		}
		first++
	}
	records = records[first:]
	if len(records) == 0 {
		return nil, nil
	}
	if j.revision == j.base && !j.done && j.header.From <= j.base {
		if err := j.agree(j.sum.Sum()); err != nil {
			return nil, err
		}
	}
	for i, r := range records {
		if j.done = j.done || j.beyond(r); j.done {
			return records[:i], nil
		}
		j.revision = r.Revision
	}
	return records, nil
}

func (j *joint) beyond(r delta.Record) bool {
	at := r.At
	if !j.closed.IsZero() && at.After(j.closed) {
		at = j.closed // by a clock that was ahead
	}
	return j.target > 0 && r.Revision > j.target || !j.until.IsZero() && at.UnixMilli() > j.until.UnixMilli()
}

// leave ends a delta.
func (j *joint) leave() {
	j.object, j.digest = j.key, delta.Digest{}
	if j.revision == j.header.To {
		j.digest = j.header.Last
	}
}

// agree compares the digest of the last revision that is there with what the delta at hand says of it. No one is obliged
// to know it.
func (j *joint) agree(theirs delta.Digest) error {
	if theirs.IsZero() || j.digest.IsZero() || theirs == j.digest {
		return nil
	}
	return fmt.Errorf("%w: revision %d is %s in %s, and %s in %s: two clusters wrote under one lineage, or one of both is broken; plan without either",
		ErrFork, j.base, j.digest, j.object, theirs, j.key)
}
