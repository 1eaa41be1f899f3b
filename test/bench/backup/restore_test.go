package backup

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/test/member"
)

// measureRestore restores a full and deltas, and compares all keys with those of the etcd that was backed up. What bounds
// it is measured then: a plain bbolt that appends the same records, and a plain file of the same size.
func measureRestore(tb testing.TB, s size) *line {
	tb.Helper()
	made, dir := prepare(tb, s), tb.TempDir()
	t := task{Store: place(tb, "restore"), Prefix: prefix, Lineage: lineage}
	m := run(tb, made.base)
	t.Kind, t.Endpoint = "full", m.Endpoint
	full := perform(tb, t)
	status, err := m.Client.Status(tb.Context(), m.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	m.Stop(tb)
	records := filepath.Join(dir, "records")
	deltas(tb, t, backend(made.after), int64(full.More["revision"])+1, status.Header.ClusterId, records)

	t.Kind, t.Path = "restore", filepath.Join(dir, "restored")
	restored := perform(tb, t)
	same(tb, backend(made.after), backend(t.Path))
	db := float64(sizeOf(tb, backend(t.Path)))
	t.Kind, t.Path, t.Records = "append", backend(m.Dir), records
	appended := perform(tb, t)
	t.Kind, t.Path, t.Bytes = "write", filepath.Join(dir, "plain"), int64(db)
	plain := perform(tb, t)

	events := restored.More["events"]
	if int(events) != s.events() {
		tb.Fatalf("%.0f events were restored, want %d", events, s.events())
	}
	l := &line{name: "restore"}
	l.add("wall_s", restored.Wall)
	l.add("cpu_s", restored.CPU)
	l.add("incumbent_156_cpu_s_over_ours", 156/restored.CPU)
	l.add("events_per_s", events/restored.More["apply"])
	l.add("events_per_s_end_to_end", events/restored.Wall)
	l.add("rss_anon_mib", restored.AnonymousPeak/mib)
	l.add("written_ratio", restored.Written/db)
	l.add("db_bytes", db)
	l.add("events", events)
	l.add("deltas", restored.More["deltas"])
	l.add("fetch_s", restored.More["fetch"])
	l.add("apply_s", restored.More["apply"])
	l.add("finish_s", restored.More["finish"])
	l.add("bbolt_alone_s", appended.More["wall"])
	l.add("bbolt_alone_cpu_s", appended.More["cpu"])
	l.add("bbolt_alone_events_per_s", events/appended.More["wall"])
	l.add("apply_over_bbolt_alone", restored.More["apply"]/appended.More["wall"])
	l.add("plain_file_s", plain.Wall)
	l.add("plain_file_cpu_s", plain.CPU)
	l.say("incumbent_cpu_s", "156-186")
	l.say("incumbent_events_per_s", "1812-3600")
	l.say("incumbent_rss_mib", "3400-4200")
	l.add("load", load(tb))
	return l
}

// restoreLatest is what `agent backup restore` does, and notes when a phase begins.
func restoreLatest(ctx context.Context, t task) (map[string]float64, error) {
	s, err := t.store(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	listed, err := catalog.Read(ctx, s, t.Prefix)
	if err != nil {
		return nil, err
	}
	plan, err := listed.Plan(catalog.Target{})
	if err != nil {
		return nil, err
	}
	last := map[restore.Phase]time.Time{}
	const url = "http://127.0.0.1:2380"
	r, err := restore.Run(ctx, restore.Config{
		Store: s, Plan: plan, DataDir: t.Path, Name: member.Name, PeerURLs: []string{url}, InitialCluster: member.Name + "=" + url,
		Token: "restored", EtcdVersion: minor, Progress: func(p restore.Progress) { last[p.Phase] = time.Now() },
	})
	end := time.Now()
	fetched, applied := last[restore.Fetching], last[restore.Finishing]
	return map[string]float64{
		"events": float64(r.Events), "deltas": float64(r.Deltas),
		"fetch": fetched.Sub(begin).Seconds(), "apply": applied.Sub(fetched).Seconds(), "finish": end.Sub(applied).Seconds(),
	}, err
}

// same fails where the keys of two databases, with all their history, differ.
func same(tb testing.TB, want, got string) {
	tb.Helper()
	if w, g := contentOf(tb, want), contentOf(tb, got); w != g {
		tb.Fatalf("what was restored is not what was backed up: sha256 of all keys %x, want %x", g, w)
	}
}

func contentOf(tb testing.TB, path string) (sum [sha256.Size]byte) {
	tb.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	all := sha256.New()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			var length [8]byte
			binary.BigEndian.PutUint32(length[:], uint32(len(k)))
			binary.BigEndian.PutUint32(length[4:], uint32(len(v)))
			all.Write(length[:])
			all.Write(k)
			all.Write(v)
			return nil
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
	return [sha256.Size]byte(all.Sum(nil))
}
