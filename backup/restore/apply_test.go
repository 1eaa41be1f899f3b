package restore

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/s3"
	"github.com/etcd-druid/druid/test/bucket"
)

// story is a history of n revisions from 2 on, of one to three records each.
func story(random *rand.Rand, n int) []delta.Record {
	var records []delta.Record
	at := time.UnixMilli(1000)
	for revision := range int64(n) {
		at = at.Add(time.Duration(random.IntN(3)) * time.Millisecond)
		for sub := range int64(1 + random.IntN(3)) {
			records = append(records, delta.Record{
				Key: delta.AppendKey(nil, revision+2, sub, false), Value: binary.BigEndian.AppendUint64(nil, random.Uint64()),
				Revision: revision + 2, At: at,
			})
		}
	}
	return records
}

func cut(records []delta.Record, from, to int64) []delta.Record {
	var found []delta.Record
	for _, r := range records {
		if r.Revision >= from && r.Revision <= to {
			found = append(found, r)
		}
	}
	return found
}

// feed gives the records of a delta backup to the joint, in pieces of random length.
func feed(j *joint, random *rand.Rand, key string, records []delta.Record, before delta.Digest) ([]delta.Record, error) {
	from, to := records[0].Revision, records[len(records)-1].Revision
	err := j.enter(key, time.Time{}, delta.Header{From: from, To: to, Before: before, Last: digestAt(cut(records, to, to))})
	var taken []delta.Record
	for len(records) > 0 && err == nil {
		n := 1 + random.IntN(len(records))
		var more []delta.Record
		more, err = j.take(records[:n])
		taken, records = append(taken, more...), records[n:]
	}
	j.leave()
	return taken, err
}

// However a history is cut and whatever overlaps, each record up to the target is taken once, and a history that
// differs at a join is detected.
func TestDeltasJoinHoweverTheyAreCut(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 5))
		history := story(random, 40)
		start, target := 1+random.Int64N(10), 12+random.Int64N(40)
		until := history[random.IntN(len(history))].At
		j := joint{revision: start, digest: digestAt(cut(history, start, start)), target: target, object: "full"}
		want := cut(history, start+1, target)
		if seed%2 == 0 {
			j.target, j.until, want = 0, until, nil
			for _, r := range cut(history, start+1, 100) {
				if !r.At.After(until) {
					want = append(want, r)
				}
			}
		}
		fork := int64(0) // the revision at which one delta differs
		if seed%5 == 0 {
			fork = start
		}
		var taken []delta.Record
		var err error
		for p := start; p < 41 && j.needs(41) && err == nil; {
			from := max(p+1-random.Int64N(4), 2)
			p = min(p+1+random.Int64N(12), 41)
			records, before := cut(history, from, p), digestAt(cut(history, from-1, from-1))
			if fork > 0 && from <= fork+1 {
				records, before = append([]delta.Record(nil), records...), delta.Digest{9}
				for i := range records {
					if records[i].Revision == fork {
						records[i].Value = []byte("other")
					}
				}
				if fork == 1 || from == 2 && fork < 2 {
					before = delta.Digest{} // nothing is known of revision 1
				}
			}
			var more []delta.Record
			more, err = feed(&j, random, "delta", records, before)
			taken = append(taken, more...)
		}
		if fork > 1 {
			if !errors.Is(err, ErrFork) {
				t.Errorf("seed %d: a history that differs at revision %d: %v", seed, fork, err)
			}
			continue
		}
		if err != nil || len(taken) != len(want) {
			t.Fatalf("seed %d: took %d records, err %v, want %d", seed, len(taken), err, len(want))
		}
		for i := range want {
			if string(taken[i].Key) != string(want[i].Key) {
				t.Fatalf("seed %d: record %d is %x, want %x", seed, i, taken[i].Key, want[i].Key)
			}
		}
	}
}

func TestAHoleIsNamed(t *testing.T) {
	j := joint{revision: 7, object: "full"}
	err := j.enter("delta", time.Time{}, delta.Header{From: 9, To: 12})
	gap, ok := errors.AsType[*GapError](err)
	if want := (GapError{From: 8, To: 8, After: "full", Before: "delta"}); !ok || *gap != want {
		t.Errorf("err %v, want %v", err, want)
	}
}

// A clock that was ahead gives records a time in the future. None of them may be newer than the delta backup, by the
// time of the store.
func TestRecordsAreNoYoungerThanTheirDelta(t *testing.T) {
	closed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	records := []delta.Record{
		{Revision: 8, Key: []byte("a"), At: closed.AddDate(12, 0, 0)},
		{Revision: 9, Key: []byte("b"), At: closed.AddDate(12, 0, 0)},
	}
	for name, tc := range map[string]struct {
		until time.Time
		want  int
	}{
		"the target is after the delta":  {closed.Add(time.Hour), 2},
		"the target is before the delta": {closed.Add(-time.Hour), 0},
	} {
		j := joint{revision: 7, object: "full", until: tc.until}
		if err := j.enter("delta", closed, delta.Header{From: 8, To: 9}); err != nil {
			t.Fatal(err)
		}
		if taken, err := j.take(records); err != nil || len(taken) != tc.want {
			t.Errorf("%s: took %d records, %v, want %d", name, len(taken), err, tc.want)
		}
	}
}

// A full backup that is read over several connections has the same content, even if some of them break, and damage is
// detected.
func TestFullReadOverBrokenConnections(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 9)
	for i := range 12 {
		value := make([]byte, 1<<20)
		_, _ = crand.Read(value) // it never fails
		s.put(fmt.Sprint("large-", i), string(value))
	}
	f := s.named(s.full().Key)
	server := bucket.Start(t)
	proxy := server.Before(t)
	credentials := t.TempDir()
	for name, value := range map[string]string{"accessKeyID": bucket.AccessKey, "secretAccessKey": bucket.SecretKey} {
		write(t, filepath.Join(credentials, name), value)
	}
	far, err := s3.Open(t.Context(), store.S3{
		Bucket: server.Make(t, "restores", false), Region: bucket.Region, Endpoint: proxy.Endpoint, PathStyle: true, CredentialsDir: credentials,
	})
	if err != nil {
		t.Fatal(err)
	}
	keep := func(content []byte) {
		if _, err := far.Put(t.Context(), f.Key, bytes.NewReader(content), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	content := s.content(f.Key)
	keep(content)
	run := func() (Result, string, error) {
		g := newTarget(t)
		cfg := g.config(s, catalog.Plan{Full: f}, newest)
		cfg.Store = far
		got, err := Run(t.Context(), cfg)
		return got, g.dir, err
	}
	faults := []bucket.Fault{bucket.CutAnswer(1000), bucket.Answer(http.StatusServiceUnavailable, "SlowDown"), bucket.Reset}
	broken, ends, requests := len(faults), map[string]bool{}, 0
	proxy.Break(func(op string, r *http.Request) bucket.Fault {
		if op != "GetObject" {
			return nil
		}
		_, end, _ := strings.Cut(r.Header.Get("Range"), "-")
		ends[end] = true // what is left of a part has its end
		if requests++; len(faults) == 0 {
			return nil
		}
		f := faults[0]
		faults = faults[1:]
		return f
	})
	got, dir, err := run()
	if err != nil || got.Revision != s.revision() {
		t.Fatalf("restored %+v, %v", got, err)
	}
	proxy.Break(nil)
	if len(ends) < 1+4 || requests < len(ends)+broken || len(faults) > 0 {
		t.Errorf("%d requests for the trailer and the parts that end at %v, want one more for each of %d that broke", requests, ends, broken)
	}
	if info, err := os.Stat(filepath.Join(dir, "member", "snap", "db")); err != nil || info.Size() != got.Size {
		t.Errorf("the database has %v, %v", info, err)
	}
	keep(flip(content, len(content)/2))
	if _, _, err := run(); err == nil {
		t.Error("a full with a bit turned over was restored")
	} else if damaged, ok := errors.AsType[*snapshot.DamagedError](err); !ok || damaged.Object != f.Key {
		t.Errorf("a full with a bit turned over: %v", err)
	}
}
