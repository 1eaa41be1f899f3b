package restore

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/synthesis"
	"github.com/etcd-druid/druid/test/member"
)

// synthesize makes a full of what a target's plan leads to.
func (s *source) synthesize(target chain.Target) (chain.Plan, snapshot.Result, error) {
	s.tb.Helper()
	p, path := s.plan(target), filepath.Join(s.tb.TempDir(), "db")
	got, err := Database(s.tb.Context(), Config{Store: s.store, Plan: p, EtcdVersion: "3.999"}, path)
	if err != nil {
		s.tb.Fatal(err)
	}
	soundPages(s.tb, path, got.Size)
	made, err := synthesis.Put(s.tb.Context(), synthesis.Source{Prefix: prefix, Store: s.store, Plan: p, Path: path, Revision: got.Revision})
	return p, made, err
}

func (s *source) synthesized(target chain.Target) snapshot.Result {
	s.tb.Helper()
	p, made, err := s.synthesize(target)
	if err != nil {
		s.tb.Fatal(err)
	}
	if made.Upper != made.Revision || made.Synthesized.From != p.Full.Key || made.Synthesized.Deltas != len(p.Deltas) {
		s.tb.Errorf("made out of %s with %d deltas is %+v", p.Full.Key, len(p.Deltas), made.Trailer)
	}
	return made
}

// A restore that begins with a full that was synthesised, also out of another such one, gives what the one gives that begins
// with the full that etcd sent: the same database, but for leases that no key has any more.
func TestASynthesisIsWhatTheSourceWas(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, minor, *seed+20)
			if _, err := s.m.Client.RoleAdd(t.Context(), "reader"); err != nil {
				t.Fatal(err)
			}
			s.traffic(*changes / 4)
			taken := s.full()
			s.traffic(*changes / 4)
			first := s.revision()
			s.deltas(taken.Revision+1, first)
			one := s.synthesized(chain.Target{Revision: first})
			s.traffic(*changes / 4)
			second := s.revision()
			s.deltas(first+1, second)
			if _, err := s.m.Client.Compact(t.Context(), first-5, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			two := s.synthesized(chain.Target{})
			if one.Revision != first || two.Revision != second || two.Synthesized.From != one.Key || two.Synthesized.Origin != taken.Revision {
				t.Errorf("made are %+v and %+v", one.Trailer, two.Trailer)
			}
			s.traffic(*changes / 4)
			last := s.revision()
			s.deltas(second+1, last)
			between := first + (second-first)/2
			for name, test := range map[string]struct {
				target chain.Target
				begins string
			}{
				"by the second to the end":          {chain.Target{Revision: last}, two.Key},
				"by the first, cut within a delta":  {chain.Target{Revision: between}, one.Key},
				"by the first to where it ends":     {chain.Target{Revision: first}, one.Key},
				"by the second to its name":         {chain.Target{Name: two.Key}, two.Key},
				"by the first through what follows": {chain.Target{Revision: last, Without: []string{two.Key}}, one.Key},
			} {
				t.Run(name, func(t *testing.T) {
					p := s.plan(test.target)
					if p.Full.Key != test.begins {
						t.Fatalf("the plan begins with %s, want %s", p.Full.Key, test.begins)
					}
					short, m := restored(t, s, p, minor)
					same(t, s, m, short.Revision)
					long := s.plan(chain.Target{Revision: short.Revision, Without: []string{one.Key, two.Key}})
					if long.Full.Origin != 0 {
						t.Fatalf("the plan without begins with %s", long.Full.Key)
					}
					sameDatabase(t, s, p, long, minor)
				})
			}
			if minor == newest {
				restoresByEtcdutl(t, s, two)
			}
		})
	}
}

// sameDatabase restores both plans, and compares all of the databases. What etcd changes when it starts is left out by that.
func sameDatabase(t *testing.T, s *source, short, long chain.Plan, minor string) {
	t.Helper()
	var got [2]contents
	for i, p := range []chain.Plan{short, long} {
		g := newTarget(t)
		g.peerURL = "http://127.0.0.1:1"
		if _, err := Run(t.Context(), g.config(s, p, minor)); err != nil {
			t.Fatal(err)
		}
		got[i] = contentOf(t, g.dir, 1)
	}
	ours, theirs := got[0].Buckets, got[1].Buckets
	leases := schema.Lease.String()
	for id, want := range theirs[leases] {
		if ours[leases][id] != want {
			t.Errorf("lease %x is %x, want %x", id, ours[leases][id], want)
		}
	}
	delete(ours, leases)
	delete(theirs, leases)
	if diff := cmp.Diff(theirs, ours); diff != "" || len(ours) < 5 {
		t.Errorf("the full that etcd sent (-) and the one that was synthesised (+) lead to %d buckets that differ:\n%s", len(ours), diff)
	}
}

func restoresByEtcdutl(t *testing.T, s *source, made snapshot.Result) {
	t.Helper()
	theirs := filepath.Join(t.TempDir(), "theirs")
	out, err := exec.CommandContext(t.Context(), member.Program(t, "etcdutl", newest), "snapshot", "restore", plain(t, s, made.Key), "--data-dir", theirs).CombinedOutput()
	if err != nil {
		t.Errorf("etcdutl: %v\n%s", err, out)
	}
}

// What the database says of members and of the log is the source's own: it is for whoever restores it to replace that.
func TestASynthesisKeepsWhoTheClusterIs(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 3)
	s.traffic(30)
	taken := s.full()
	s.traffic(30)
	s.deltas(taken.Revision+1, s.revision())
	made := s.synthesized(chain.Target{})
	buckets := func(key string) map[string]map[string]string {
		path := filepath.Join(t.TempDir(), "data", "member", "snap", "db")
		p := chain.Plan{Full: s.named(taken.Key)}
		if key == made.Key {
			p.Full = s.catalog().Histories[0].Synthesized[0]
		}
		if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
			t.Fatal(err)
		}
		if _, err := Database(t.Context(), Config{Store: s.store, Plan: p, EtcdVersion: newest}, path); err != nil {
			t.Fatal(err)
		}
		all := bucketsOf(t, path)
		maps.DeleteFunc(all, func(name string, _ map[string]string) bool { return name == "key" || name == "lease" })
		return all
	}
	want := buckets(taken.Key)
	if diff := cmp.Diff(want, buckets(made.Key)); diff != "" || len(want["members"]) != 1 || len(want["meta"]) == 0 {
		t.Errorf("the full (-) and what was made of it (+), with %d members:\n%s", len(want["members"]), diff)
	}
}

func TestASynthesisReplacesNothing(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 4)
	s.traffic(10)
	taken := s.full()
	if _, made, err := s.synthesize(chain.Target{}); !errors.Is(err, synthesis.ErrNothing) {
		t.Errorf("out of a full alone is made %+v, %v", made, err)
	}
	s.traffic(10)
	s.delta(taken.Revision+1, s.revision())
	made := s.synthesized(chain.Target{})
	before := s.content(made.Key)
	if _, _, err := s.synthesize(chain.Target{Without: []string{made.Key}}); !errors.Is(err, store.ErrExists) || string(before) != string(s.content(made.Key)) {
		t.Errorf("made again: %v", err)
	}
	// A name that was changed is found out.
	f := s.catalog().Histories[0].Synthesized[0]
	renamed := chain.SynthesisKey(prefix, lineage, f.Revision, f.Origin-1, f.At)
	if _, err := s.store.Put(t.Context(), renamed, bytes.NewReader(before), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	p := chain.Plan{Full: chain.Full{Lineage: lineage, Key: renamed, Revision: f.Revision, Origin: f.Origin - 1, At: f.At, Size: f.Size}}
	path := filepath.Join(t.TempDir(), "db")
	if _, err := Database(t.Context(), Config{Store: s.store, Plan: p, EtcdVersion: newest}, path); !errors.Is(err, ErrSwapped) {
		t.Errorf("another name: %v", err)
	}
	if err := os.WriteFile(path, []byte("mine"), fileMode); err != nil {
		t.Fatal(err)
	}
	if _, err := Database(t.Context(), Config{Store: s.store, Plan: s.plan(chain.Target{}), EtcdVersion: newest}, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if mine, err := os.ReadFile(path); err != nil || string(mine) != "mine" {
		t.Errorf("the file is %q, %v", mine, err)
	}
}
