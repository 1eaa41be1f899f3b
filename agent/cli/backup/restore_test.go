package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

// testRestore restores what backups.Make made, and starts an etcd on it.
func testRestore(t *testing.T, h catalog.History, at []string) {
	minor := member.Minors[len(member.Minors)-1]
	dataDir, peer := filepath.Join(t.TempDir(), "data"), "http://"+machine.Address(t)
	args := append([]string{"restore", "--data-dir", dataDir, "--etcd-version", minor, "--member", member.Name, "--initial-advertise-peer-urls",
		peer, "--bump", "1000"}, at...)
	if out, code, failure := run(t, append(args, "--revision", "22")...); code != 2 || !strings.Contains(failure, "revisions 6 to 21") {
		t.Errorf("a revision that is not there: exit code %d, %q\n%s", code, failure, out)
	}
	if out, code, failure := run(t, append(args, "--etcd-version", "3.4")...); code != 1 || !strings.Contains(failure, "cannot read") {
		t.Errorf("an old etcd: exit code %d, %q\n%s", code, failure, out)
	}
	if _, err := os.Stat(dataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was refused left a directory: %v", err)
	}
	out := ok(t, append(args, "--revision", "14", "-o", "json")...)
	if r := decoded[restored](t, out); r.Revision != 14 || r.Bumped != 1014 || r.Plan.Full.Key != h.Fulls[0].Key || r.DataDir != dataDir {
		t.Errorf("got %+v", r)
	}
	if _, code, failure := run(t, args...); code != 1 || !strings.Contains(failure, "not empty") {
		t.Errorf("again: exit code %d, %q", code, failure)
	}
	m := member.Start(t, minor, member.Options{Dir: dataDir, PeerURL: peer})
	got, err := m.Client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	// Revision r has the put number r-1, which wrote to one of seven keys.
	values := map[string]string{}
	for _, kv := range got.Kvs {
		values[string(kv.Key)] = string(kv.Value)
	}
	want := map[string]string{}
	for n := 1; n <= 13; n++ {
		want[fmt.Sprintf("key-%d", n%7)] = fmt.Sprintf("c-%d", n)
	}
	if d := cmp.Diff(values, want); d != "" || got.Header.Revision != 1014 {
		t.Errorf("revision %d (-got +want)\n%s", got.Header.Revision, d)
	}
	contains(t, ok(t, append(append([]string{"restore"}, at...), "--etcd-version", minor, "--data-dir", dataDir+"2")...),
		dataDir+"2 has revision 21 of lineage "+string(first), "5 events applied")
}

func TestAnOlderFullIsTakenWhereOneIsTooNew(t *testing.T) {
	moment := func(i int64) time.Time { return time.UnixMilli(1_790_000_000_000 + i*3_600_000) }
	h := catalog.History{Lineage: first}
	for i := range int64(3) {
		h.Fulls = append(h.Fulls, catalog.Full{Lineage: first, Key: catalog.FullKey("", first, 1+10*i, moment(i)), Revision: 1 + 10*i, At: moment(i)})
		h.Deltas = append(h.Deltas, catalog.Delta{Lineage: first, Key: catalog.DeltaKey("", first, 2+10*i, 11+10*i, moment(i+1)), From: 2 + 10*i,
			To: 11 + 10*i, At: moment(i + 1)})
	}
	c := catalog.Catalog{Histories: []catalog.History{h}}
	tooNew := fmt.Errorf("full x: %w", restore.ErrTooNew)
	attempt := func(good int64) (tried []int64, err error) {
		_, _, err = planAndRestore(c, catalog.Target{Revision: 31}, func(p catalog.Plan) (restore.Result, error) {
			if tried = append(tried, p.Full.Revision); p.Full.Revision == good {
				return restore.Result{}, nil
			}
			return restore.Result{}, tooNew
		})
		return tried, err
	}
	if tried, err := attempt(1); err != nil || !cmp.Equal(tried, []int64{21, 11, 1}) {
		t.Errorf("tried %v, %v", tried, err)
	}
	tried, err := attempt(0)
	if len(tried) != 3 || !errors.Is(err, restore.ErrTooNew) || !errors.Is(err, catalog.ErrOutside) {
		t.Errorf("tried %v, %v; want both errors", tried, err)
	}
}

func TestBackupsAreToBlame(t *testing.T) {
	for err, want := range map[error]bool{
		&snapshot.DamagedError{Object: "x"}: true, &delta.DamagedError{Object: "x"}: true, &restore.GapError{}: true, restore.ErrShort: true,
		restore.ErrSwapped: true, restore.ErrFork: true, store.ErrDamaged: true,
		restore.ErrNotEmpty: false, restore.ErrSpace: false, restore.ErrVersion: false, store.ErrForbidden: false,
	} {
		wrapped := fmt.Errorf("restore: %w", err)
		if got := !errors.Is(wrapped, refused(wrapped)); got != want {
			t.Errorf("%v: an answer: %t, want %t", err, got, want)
		}
	}
}

// TestEtcdctlFileRestoredWithoutCluster: a file of etcdctl is restored without a cluster.
func TestEtcdctlFileRestoredWithoutCluster(t *testing.T) {
	t.Parallel()
	minor := "3.6"
	source := member.Start(t, minor, member.Options{Token: "old"})
	if _, err := source.Client.Put(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	stream, err := source.Client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(stream)
	if err := errors.Join(err, stream.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"good.db": content, "cut.db": content[:len(content)-1]} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dataDir, peer := filepath.Join(t.TempDir(), "data"), "http://"+machine.Address(t)
	args := func(more ...string) []string {
		return append([]string{"restore", "--store", "dir://" + dir, "--data-dir", dataDir, "--etcd-version", minor,
			"--member", member.Name, "--initial-advertise-peer-urls", peer}, more...)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a file that is cut":       {args("--file", "cut.db"), exitNo, "is incomplete"},
		"a file that is not there": {args("--file", "gone.db"), exitNo, "no such object called gone.db"},
		"a file below a prefix":    {args("--file", "good.db", "--prefix", "a/b"), 1, "--prefix must not be combined with --file"},
		"a file to a revision":     {args("--file", "good.db", "--revision", "2"), 1, "none of the others can be"},
	} {
		if _, code, failure := run(t, c.args...); code != c.code || !strings.Contains(failure, c.says) {
			t.Errorf("%s: exit code %d, %q; want %q in it", name, code, failure, c.says)
		}
	}
	contains(t, ok(t, args("--file", "good.db")...), dataDir+" has revision 2 of file good.db")
	m := member.Start(t, minor, member.Options{Dir: dataDir, PeerURL: peer})
	if got, err := m.Client.Get(t.Context(), "a"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "b" {
		t.Errorf("it holds %+v, %v", got, err)
	}
}
