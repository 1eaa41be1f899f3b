package backup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
)

// deltas stores what a database holds from a revision on as a Recorder would have, had it watched, and writes the same
// records into a file that costs nothing to read. A watch that comes late is no way to make them: etcd sends it a thousand
// revisions at a time and reads all that follow for each thousand.
func deltas(tb testing.TB, t task, database string, from int64, cluster uint64, records string) {
	tb.Helper()
	s, err := t.store(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	file, err := os.Create(records)
	if err != nil {
		tb.Fatal(err)
	}
	m := &maker{tb: tb, task: t, store: s, records: bufio.NewWriterSize(file, mib), header: delta.Header{Lineage: string(t.Lineage), ClusterID: cluster}}
	db, err := bolt.Open(database, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket([]byte("key")).Cursor()
		for k, v := c.Seek(delta.AppendKey(nil, from, 0, false)); k != nil; k, v = c.Next() {
			if err := m.append(k, v); err != nil {
				return err
			}
		}
		return m.close()
	})
	if err := errors.Join(err, db.Close(), m.records.Flush(), file.Close()); err != nil {
		tb.Fatalf("make deltas: %v", err)
	}
}

type maker struct {
	tb      testing.TB
	task    task
	store   store.Store
	header  delta.Header
	writer  *delta.Writer
	records *bufio.Writer
}

// append takes the next record. Each is a revision.
func (m *maker) append(key, value []byte) (err error) {
	if m.writer != nil && m.writer.Size() >= delta.DefaultMaxBytes {
		if err := m.close(); err != nil {
			return err
		}
	}
	if m.writer == nil {
		if m.writer, err = delta.NewWriter(m.header); err != nil {
			return err
		}
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(key)))
	head = binary.BigEndian.AppendUint32(head, uint32(len(value)))
	for _, b := range [][]byte{head, key, value} {
		if _, err := m.records.Write(b); err != nil {
			return err
		}
	}
	return m.writer.Append(key, value, time.Now())
}

func (m *maker) close() error {
	now := time.Now()
	finished, err := m.writer.Finish(now, delta.Leases{Known: true}, nil)
	if err != nil {
		return err
	}
	h := finished.Header
	m.writer, m.header.Before = nil, h.Last
	_, err = m.store.Put(m.tb.Context(), catalog.DeltaKey(m.task.Prefix, m.task.Lineage, h.From, h.To, now), finished.Reader(), store.PutOptions{IfAbsent: true})
	return err
}
