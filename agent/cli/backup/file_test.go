package backup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

func TestAFileOfEtcdctlIsRestoredWithoutACluster(t *testing.T) {
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
		"a file that is cut":       {args("--file", "cut.db"), exitNo, "cut off"},
		"a file that is not there": {args("--file", "gone.db"), exitNo, "no such object called gone.db"},
		"a file below a prefix":    {args("--file", "good.db", "--prefix", "a/b"), 1, "--prefix must not be combined with --file"},
		"a file to a revision":     {args("--file", "good.db", "--revision", "2"), 1, "none of the others can be"},
	} {
		if _, code, failure := run(t, c.args...); code != c.code || !strings.Contains(failure, c.says) {
			t.Errorf("%s: exit code %d, %q; want %q in it", name, code, failure, c.says)
		}
	}
	contains(t, ok(t, args("--file", "good.db")...), dataDir+" holds revision 2 of file good.db")
	m := member.Start(t, minor, member.Options{Dir: dataDir, PeerURL: peer})
	if got, err := m.Client.Get(t.Context(), "a"); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "b" {
		t.Errorf("it holds %+v, %v", got, err)
	}
}
