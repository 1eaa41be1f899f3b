package delta

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Header says what a delta holds.
type Header struct {
	// Version of the format; 1 is the only one.
	Version int
	// Lineage is the name of the history that the revisions belong to.
	Lineage string
	// ClusterID and MemberID are etcd's, of the member that was watched.
	ClusterID, MemberID uint64
	// From and To are the first and the last revision; all between them are there.
	From, To int64
	// Before is the digest of revision From-1, which is not in the delta; zero: no one knows it. Last is that of To.
	Before, Last Digest
	// Opened is when the watch delivered From, Closed when the delta was closed, by the recorder's clock, in milliseconds.
	Opened, Closed time.Time
	// Revisions, and Events, which are the records.
	Revisions, Events int64
	// Blocks of records.
	Blocks int64
}

// Lease is what is known of a lease. Leases are in no event of a watch.
type Lease struct {
	ID int64
	// TTL is what was granted, in seconds; 0: the lease was gone before anybody could ask, or etcd did not answer.
	TTL int64
	// Remaining of it, in seconds, at the time At, by the clock of the recorder.
	Remaining int64
	At        time.Time
}

// Leases are the leases that a delta reports.
type Leases struct {
	// Records of each lease that a put of this delta references, and of each other one that is Alive and was never recorded
	// by this recorder before.
	Records []Lease
	// Alive are the IDs of all leases that etcd had when the delta was closed. Known is false when the delta does not say: it has no
	// checkpoint, etcd did not answer, or etcd has more than MaxAlive.
	Alive []int64
	Known bool
}

// hexID is an ID as it is written everywhere.
type hexID uint64

func (id hexID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 16), nil }

func (id *hexID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*id = hexID(n)
	return err
}

type headerJSON struct {
	Lineage   string `json:"lineage"`
	ClusterID hexID  `json:"clusterID"`
	MemberID  hexID  `json:"memberID"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Before    Digest `json:"before"`
	Last      Digest `json:"last"`
	Opened    int64  `json:"opened"`
	Closed    int64  `json:"closed"`
	Revisions int64  `json:"revisions"`
	Events    int64  `json:"events"`
	Blocks    int64  `json:"blocks"`
}

func (h Header) marshal() ([]byte, error) {
	return json.Marshal(headerJSON{
		Lineage: h.Lineage, ClusterID: hexID(h.ClusterID), MemberID: hexID(h.MemberID), From: h.From, To: h.To,
		Before: h.Before, Last: h.Last, Opened: h.Opened.UnixMilli(), Closed: h.Closed.UnixMilli(),
		Revisions: h.Revisions, Events: h.Events, Blocks: h.Blocks,
	})
}

func unmarshalHeader(version int, b []byte) (Header, error) {
	var w headerJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return Header{}, fmt.Errorf("its header cannot be read: %w", err)
	}
	h := Header{
		Version: version, Lineage: w.Lineage, ClusterID: uint64(w.ClusterID), MemberID: uint64(w.MemberID), From: w.From, To: w.To,
		Before: w.Before, Last: w.Last, Opened: time.UnixMilli(w.Opened), Closed: time.UnixMilli(w.Closed),
		Revisions: w.Revisions, Events: w.Events, Blocks: w.Blocks,
	}
	// To-From+1 may overflow where From is far below zero, but that is refused before.
	if h.From < 1 || h.To < h.From || h.Revisions != h.To-h.From+1 || h.Events < h.Revisions || h.Blocks < 1 {
		return Header{}, fmt.Errorf("its header contradicts itself: revisions %d to %d, %d revisions, %d events, %d blocks",
			h.From, h.To, h.Revisions, h.Events, h.Blocks)
	}
	return h, nil
}

type leasesJSON struct {
	Leases []leaseJSON `json:"leases"`
	// Alive is absent when it is not known.
	Alive *[]hexID `json:"alive,omitempty"`
}

type leaseJSON struct {
	ID        hexID `json:"id"`
	TTL       int64 `json:"ttl"`
	Remaining int64 `json:"remaining"`
	At        int64 `json:"at"`
}

func (l Leases) marshal() ([]byte, error) {
	w := leasesJSON{Leases: []leaseJSON{}}
	for _, r := range l.Records {
		w.Leases = append(w.Leases, leaseJSON{hexID(r.ID), r.TTL, r.Remaining, r.At.UnixMilli()})
	}
	if l.Known {
		ids := make([]hexID, 0, len(l.Alive))
		for _, id := range l.Alive {
			ids = append(ids, hexID(id))
		}
		w.Alive = &ids
	}
	return json.Marshal(w)
}

func unmarshalLeases(b []byte) (Leases, error) {
	var w leasesJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return Leases{}, fmt.Errorf("its leases cannot be read: %w", err)
	}
	var l Leases
	for _, r := range w.Leases {
		l.Records = append(l.Records, Lease{int64(r.ID), r.TTL, r.Remaining, time.UnixMilli(r.At)})
	}
	if w.Alive != nil {
		l.Known = true
		for _, id := range *w.Alive {
			l.Alive = append(l.Alive, int64(id))
		}
	}
	return l, nil
}
