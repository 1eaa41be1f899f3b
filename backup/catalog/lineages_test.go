package catalog

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/store"
)

// A record that a newer version wrote may belong to this cluster. While it exists, nothing is deleted.
func TestRecordOfNewerFormatIsADoubt(t *testing.T) {
	s := newStore(t)
	put(t, s, BootstrapKey(prefix, first), `{"version":2,"lineage":{"name":"`+string(first)+`"}}`)
	c, unread, err := Survey(t.Context(), s, prefix)
	if err != nil || !errors.Is(unread, store.ErrNewer) || !strings.Contains(unread.Error(), BootstrapKey(prefix, first)) {
		t.Errorf("got %v, %v; want a doubt of ErrNewer that names the record", unread, err)
	}
	if len(c.Histories) != 1 || c.Histories[0].Formation != nil || c.Histories[0].BootstrapProblem == "" {
		t.Errorf("got %+v, want a lineage without a known bootstrap", c)
	}
	if _, err := Read(t.Context(), s, prefix); !errors.Is(err, store.ErrNewer) {
		t.Errorf("who restores gets %v, want ErrNewer", err)
	}
}

func TestBootstrapIsWrittenOnce(t *testing.T) {
	s := newStore(t)
	formation := Formation{Lineage: second, Parent: first, Fork: 20, ClusterID: "c", ClusterUID: "u", Created: at(30)}
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return WriteBootstrap(t.Context(), s, prefix, formation) })
	}
	if err := group.Wait(); err != nil {
		t.Errorf("writers of the same bootstrap: %v", err)
	}
	again := formation
	again.Created, again.Reason = at(31), "after a crash"
	if err := WriteBootstrap(t.Context(), s, prefix, again); err != nil {
		t.Errorf("the same bootstrap, reported later: %v", err)
	}
	for name, change := range map[string]func(*Formation){
		"parent": func(b *Formation) { b.Parent = "00000001-bb" }, "fork": func(b *Formation) { b.Fork = 21 },
		"cluster": func(b *Formation) { b.ClusterID = "d" }, "object": func(b *Formation) { b.ClusterUID = "v" },
	} {
		other := formation
		change(&other)
		if err := WriteBootstrap(t.Context(), s, prefix, other); !errors.Is(err, ErrBootstrap) || !strings.Contains(err.Error(), BootstrapKey(prefix, second)) {
			t.Errorf("another %s: got %v, want ErrBootstrap that names the record", name, err)
		}
	}
	got, err := ReadBootstrap(t.Context(), s, prefix, second)
	if err != nil {
		t.Fatal(err)
	}
	formation.Version = BootstrapVersion
	diff(t, got, formation)
}

func TestBootstrapsThatMakeNoSense(t *testing.T) {
	for name, b := range map[string]Formation{
		"no lineage": {}, "a bad one": {Lineage: "x"}, "a bad parent": {Lineage: first, Parent: "x", Fork: 1}, "a fork of nothing": {Lineage: first, Fork: 1},
		"its own parent": {Lineage: first, Parent: first, Fork: 1}, "a fork before the beginning": {Lineage: second, Parent: first, Fork: -1},
		"another version": {Version: 2, Lineage: first},
	} {
		if err := WriteBootstrap(t.Context(), newStore(t), prefix, b); !errors.Is(err, ErrBootstrap) {
			t.Errorf("%s: got %v, want ErrBootstrap", name, err)
		}
	}
	s := newStore(t)
	for key, content := range map[Lineage]string{
		first:  `{"version":-1,"lineage":"` + string(first) + `"}`,
		second: `{"version":1,"lineage":"` + string(first) + `"}`,
		third:  `{"version":1,`,
		twin:   strings.Repeat(" ", maxBootstrap) + `{"version":1,"lineage":"` + string(twin) + `"}`,
	} {
		put(t, s, BootstrapKey(prefix, key), content)
		if b, err := ReadBootstrap(t.Context(), s, prefix, key); !errors.Is(err, ErrBootstrap) || !strings.Contains(err.Error(), BootstrapKey(prefix, key)) {
			t.Errorf("%s: got %+v, %v; want ErrBootstrap that names the record", content, b, err)
		}
	}
	if _, err := ReadBootstrap(t.Context(), s, prefix, "00000009-aa"); !errors.Is(err, store.ErrAbsent) {
		t.Errorf("got %v, want ErrAbsent", err)
	}
}

func TestLineages(t *testing.T) {
	for _, bad := range []string{"", "-", "00000001", "00000001-", "0000001-a", "000000001-a", "0000000g-a", "0000000A-a", "00000001-A",
		"00000001-a_b", "00000001-" + strings.Repeat("a", maxNonce+1)} {
		if l, err := ParseLineage(bad); err == nil {
			t.Errorf("%q is read as %q", bad, l)
		}
	}
	l, err := ParseLineage("0000002a-0123456789abcdef")
	if err != nil || l.Epoch() != 42 {
		t.Errorf("got %q of epoch %d, %v", l, l.Epoch(), err)
	}
	if first.Compare(second) >= 0 || second.Compare(twin) >= 0 || twin.Compare(twin) != 0 {
		t.Error("want lineages by epoch, and then by nonce")
	}
}
