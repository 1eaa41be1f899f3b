package start

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/leases"
)

// fullLease is an API server that has only the Lease of full backups, with these annotations. Without any, it has none.
type fullLease struct {
	coordinationclient.LeaseInterface
	annotations map[string]string
	err         error
}

func (f fullLease) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if f.err == nil && (f.annotations == nil || name != leases.SnapshotName("c", leases.ComponentFullSnapshot)) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: f.annotations}}, f.err
}

// reports makes the API server report what a verification found.
func (b *Bootstrapper) reports(f fullLease) { b.store = leases.NewStore(f, "c") }

func brokenObjects(keys ...string) fullLease {
	return fullLease{annotations: map[string]string{leases.Prefix + "broken-objects": strings.Join(keys, " ")}}
}

// The dry run leaves out what a verification found broken. If nothing else leads as far, a note says so.
func TestDryRunLeavesOutBrokenBackups(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	covered, alone, last := savedOften(t, path)
	b := planning(t, path, nil)
	for name, test := range map[string]struct {
		lease    fullLease
		revision int64
		without  string // is not read
		note     string // is named in a note
	}{
		"no Lease":               {fullLease{}, last, "", ""},
		"nothing is broken":      {brokenObjects(), last, "", ""},
		"another one is broken":  {brokenObjects(alone), last, alone, ""},
		"older ones lead as far": {brokenObjects(covered), last, covered, ""},
		"the object of the verdict": {fullLease{annotations: map[string]string{leases.Prefix + "verdict": "Broken", leases.Prefix + "broken-object": covered}},
			last, covered, ""},
		"no other one leads as far":     {brokenObjects(covered, alone), last + 1, "", alone},
		"a Lease that cannot be parsed": {fullLease{annotations: map[string]string{leases.Prefix + "verdict": "Maybe"}}, last, "", ""},
	} {
		b.reports(test.lease)
		plan, err := b.PlanRestore(t.Context(), leases.RestoreTarget{Revision: test.revision}, string(oldLineage))
		switch notes := strings.Join(plan.Notes, " "); {
		case err != nil, plan.Revision != test.revision, plan.Full == test.without:
			t.Errorf("%s: %+v, %v", name, plan, err)
		case test.without == "" && test.revision == last && plan.Full != covered:
			t.Errorf("%s: the plan has %s, want the newest full backup %s", name, plan.Full, covered)
		case test.note == "" && notes != "", !strings.Contains(notes, test.note):
			t.Errorf("%s: the notes are %q", name, notes)
		}
	}
	b.reports(fullLease{err: errors.New("the API server does not answer")})
	if plan, err := b.PlanRestore(t.Context(), leases.RestoreTarget{}, string(oldLineage)); err == nil || !strings.Contains(err.Error(), "the agent tries again") {
		t.Errorf("the Lease cannot be read: %+v, %v", plan, err)
	}
}

// unread is a store of which one object must not be read.
type unread struct {
	store.Store
	key string
}

var errUnread = errors.New("it is not to be read")

func (s unread) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if key == s.key {
		return nil, errUnread
	}
	return s.Store.Get(ctx, key, offset, length)
}

// A recovery from a backup leaves out what is damaged or known to be broken where the rest leads as far as the order.
func TestRecoveryLeavesOutBrokenBackups(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	covered, alone, last := savedOften(t, path)
	for name, test := range map[string]struct {
		removed, damaged, unread string
		broken                   []string
		revision                 int64
		says                     string   // is reported meanwhile
		fails                    []string // is in the error
	}{
		"nothing is wrong": {revision: last + 1, says: "restoring " + alone},
		"a damaged full backup whose end others reach": {removed: alone, damaged: covered, revision: last, says: "damaged: " + covered},
		"a damaged one with more than the others": {damaged: alone, revision: last + 1,
			fails: []string{"full backup " + alone + " is damaged", "; without it: ", "reach revision"}},
		"a broken one whose end others reach":   {removed: alone, broken: []string{covered}, unread: covered, revision: last, says: "restoring "},
		"a broken one with more than the order": {broken: []string{alone}, unread: alone, revision: last, says: "restoring " + covered},
		"a broken one with more than the others": {broken: []string{alone}, revision: last + 1,
			says: "restoring " + alone + ", with objects that a verification found broken: " + alone},
	} {
		t.Run(name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(copied, os.DirFS(path)))
			if test.removed != "" {
				must(t, os.Remove(filepath.Join(copied, test.removed)))
			}
			if test.damaged != "" {
				flip(t, filepath.Join(copied, test.damaged))
			}
			b := planning(t, copied, nil)
			b.reports(brokenObjects(test.broken...))
			b.openStore = func(_ context.Context, o store.Config) (store.Store, error) {
				s, err := dir.Open(*o.Directory)
				return unread{s, test.unread}, err
			}
			o := &observation{}
			o.record.record.Lineage = string(oldLineage)
			g := &regroup{token: "token", peerURL: "http://127.0.0.1:2380",
				order: leases.Recovery{Mode: leases.RecoverBackup, Lineage: string(oldLineage), Revision: test.revision}}
			var said []string
			result, err := b.fromBackup(t.Context(), o, g, func(words string) { said = append(said, words) })
			if len(test.fails) == 0 && (err != nil || result.Revision != test.revision && test.removed+test.damaged != "" || result.Revision < test.revision) {
				t.Errorf("revision %d, %v; want %d", result.Revision, err, test.revision)
			}
			for _, want := range test.fails {
				if err == nil || !strings.Contains(err.Error(), want) || failureOf(err) != leases.FailedBackups {
					t.Errorf("failure %q, %v; want %q", failureOf(err), err, want)
				}
			}
			if !slices.ContainsFunc(said, func(words string) bool { return strings.Contains(words, test.says) }) {
				t.Errorf("it says %q, want %q", said, test.says)
			}
		})
	}
}
