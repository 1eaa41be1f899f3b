package start

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/survivor"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/history"
)

// inPlace is a cluster that serves, and its backups: two full backups and the changes after the first one.
type inPlace struct {
	*cluster
	before leases.Record
	place  history.Place
	second string // key of the second full backup
	// target is the last of 10 writes. The second full backup has them. Then 10 writes follow that are saved too, up to last.
	target, last int64
}

// savedInPlace returns a cluster of three members that serves and is saved.
func savedInPlace(t *testing.T) *inPlace {
	t.Helper()
	t.Parallel()
	c := &inPlace{cluster: newCluster(t, "3.7.3", "c-a", "c-b", "c-c")}
	path := t.TempDir()
	for _, m := range c.members {
		m.savedAt(path)
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	c.eventually("the cluster is recorded", func() error {
		if c.before, _ = c.record(); c.before.Phase != leases.PhaseFormed {
			return fmt.Errorf("the record says %+v", c.before)
		}
		return nil
	})
	c.place = placeAt(t, path, "ns/c")
	c.place.Lineage = catalog.Lineage(c.before.Lineage)
	c.place.Formation(t, "uid-c")
	client := c.client("c-a")
	defer func() { _ = client.Close() }()
	c.put("c-a", "color", "blue")
	first := c.place.Full(t, client)
	c.target = c.writes("c-a", 10)
	c.second = c.place.Full(t, client).Key
	c.put("c-a", "color", "red")
	c.last = c.writes("c-a", 20)
	c.place.Delta(t, client, first.Revision)
	return c
}

// order is an approved order to restore the target.
func (c *inPlace) order() leases.Recovery {
	return leases.Recovery{
		Epoch: 2, Nonce: "0123", Mode: leases.RecoverRestore, Chosen: "c-b", Lineage: c.before.Lineage, Revision: c.target,
		Target: &leases.RestoreTarget{Revision: c.target}, Request: "4567", Known: c.last,
	}
}

// stops writes the order, and has the agent of the leader read it, as its duties do. It returns when all members acknowledged it.
func (c *inPlace) stops(order leases.Recovery) leases.Recovery {
	c.t.Helper()
	began := time.Now()
	written := c.orders(order)
	record, _ := c.record()
	c.eventually("the leader stops", func() error {
		for name, m := range c.members {
			if c.leads(name) {
				m.b.CompleteRecord(record)
				return nil
			}
		}
		return errors.New("no member leads")
	})
	for name := range c.members {
		c.eventually(name+" acknowledges the order", func() error {
			if report := c.members[name].holds(); report == nil || report.Order != written.Name() {
				return fmt.Errorf("it reports %+v", report)
			}
			return nil
		})
	}
	c.t.Logf("all members stopped and acknowledged after %s", time.Since(began).Round(time.Millisecond))
	return written
}

// resumes checks that the old raft group serves with all data.
func (c *inPlace) resumes() {
	c.t.Helper()
	c.voters("c-a", "c-b", "c-c")
	c.has("c-c", 20)
	if after, _ := c.record(); after.ClusterID != c.before.ClusterID || after.FormedEpoch != 1 {
		c.t.Errorf("the record is %+v, was %+v", after, c.before)
	}
}

// A quorum serves. An order to restore stops all members, and the selected one forms the cluster from the backups.
func TestAClusterThatServesIsRestored(t *testing.T) {
	c := savedInPlace(t)
	refuses := func(_ context.Context, o store.Config) (store.Store, error) {
		s, err := dir.Open(*o.Directory)
		return tooNew{s, c.second}, err
	}
	c.members["c-b"].openStore = refuses
	c.members["c-b"].halt()
	c.members["c-b"].start()
	c.voters("c-a", "c-b", "c-c")
	order := c.order()
	order.Known = 5 * restore.DefaultBump // as after recoveries
	c.executes(c.stops(order))
	c.formedAgain()
	c.voters("c-a", "c-b", "c-c")
	for name := range c.members {
		c.has(name, 10)
		if color := c.get(name, "color"); color != "blue" {
			t.Errorf("%s has the color %s, which was written after the target", name, color)
		}
	}
	client := c.client("c-a")
	defer func() { _ = client.Close() }()
	later, err := client.Get(t.Context(), "write-0010")
	must(t, err)
	if later.Count != 0 || later.Header.Revision <= order.Known {
		t.Errorf("%d later keys, revision %d; known was %d", later.Count, later.Header.Revision, order.Known)
	}
	record, _ := c.record()
	if done, fork := record.Recovered, record.Fork; done == nil || done.Mode != leases.RecoverRestore || done.Request != order.Request || done.Member != "c-b" ||
		fork == nil || fork.Parent != c.before.Lineage || fork.Revision != c.target || record.ClusterID == c.before.ClusterID {
		t.Errorf("the record is %+v with %+v, %+v", record, done, fork)
	}
	formation, err := catalog.ReadBootstrap(t.Context(), c.place.Store, "ns/c", catalog.Lineage(record.Lineage))
	if err != nil || formation.Parent != c.place.Lineage || formation.Fork != c.target {
		t.Errorf("the store reports %+v, %v", formation, err)
	}
	for name, m := range c.members {
		quarantined, err := datadir.AllQuarantined(m.cfg.VolumePath)
		if err != nil || len(quarantined) != 1 || !strings.HasSuffix(quarantined[0].Name, "-superseded") ||
			len(m.b.droppable(quarantined, m.b.Clocks(), false)) != 0 {
			t.Errorf("the old data of %s is %+v, %v", name, quarantined, err)
		}
	}
	if rules := c.members["c-b"].deeds(); !inOrder(rules, "prepare-restore", "form-ordered", "place-recovered", "resume-majority") {
		t.Errorf("it decided by %v", rules)
	}
}

// tooNew is a store of which one object turns out to contain more than the target.
type tooNew struct {
	store.Store
	key string
}

func (s tooNew) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if key == s.key {
		return nil, restore.ErrTooNew
	}
	return s.Store.Get(ctx, key, offset, length)
}

// The order is released after all members acknowledged it. Nothing was moved.
func TestAReleasedRestoreResumes(t *testing.T) {
	c := savedInPlace(t)
	order := c.stops(c.order())
	c.changeRecord("the order is released", func(r leases.Record) (leases.Record, error) { return r.Release(order.Name()) })
	c.resumes()
}

// The backups do not reach what was approved any more. The disk report of the selected member says that it cannot restore, its agent says
// why, and the release brings the cluster back.
func TestRestoreShortOfPlanReleased(t *testing.T) {
	c := savedInPlace(t)
	order := c.order()
	order.Target, order.Revision = &leases.RestoreTarget{Time: time.Now()}, c.last+1
	order = c.stops(order)
	c.executes(order)
	c.eventually("the disk report names a failure", func() error {
		if report := c.members["c-b"].holds(); report == nil || report.Order != order.Name() || report.Failed != leases.FailedBackups {
			return fmt.Errorf("it is %+v", report)
		}
		return nil
	})
	c.eventually("the agent says why", func() error {
		want := fmt.Sprintf("reach revision %d, and the recovery order names %d", c.last, c.last+1)
		if said := c.members["c-b"].reported(func(p Published) bool { return strings.Contains(p.Reason, want) }); len(said) == 0 {
			return fmt.Errorf("it does not say %q", want)
		}
		return nil
	})
	c.changeRecord("the order is released", func(r leases.Record) (leases.Record, error) { return r.Release(order.Name()) })
	c.resumes()
}

// The store does not answer. That can pass, so the agent tries again, and the order stands.
func TestARestoreWaitsForTheStore(t *testing.T) {
	c := savedInPlace(t)
	c.members["c-b"].openStore = func(context.Context, store.Config) (store.Store, error) { return nil, errors.New("connection refused") }
	c.members["c-b"].halt()
	c.members["c-b"].start()
	c.voters("c-a", "c-b", "c-c")
	order := c.stops(c.order())
	c.executes(order)
	refused := func(p Published) bool { return strings.Contains(p.Reason, "connection refused") }
	c.eventually("the agent tries twice", func() error {
		if record, _ := c.record(); record.Attempt == nil || len(c.members["c-b"].reported(refused)) == 0 {
			return fmt.Errorf("the attempt is %+v", record.Attempt)
		}
		return nil
	})
	if report := c.members["c-b"].holds(); report == nil || report.Order != order.Name() || report.Failed != "" {
		t.Errorf("the disk report is %+v", report)
	}
	c.changeRecord("the order is released", func(r leases.Record) (leases.Record, error) { return r.Release(order.Name()) })
	c.resumes()
}

// The agent gives up only what fails again in the same way.
func TestAnAttemptFailsForGoodOrForNow(t *testing.T) {
	for want, errs := range map[leases.RestoreFailure][]error{
		leases.FailedBackups: {
			restore.ErrSwapped, restore.ErrShort, restore.ErrFork, &restore.GapError{}, &snapshot.DamagedError{}, &delta.DamagedError{}, store.ErrDamaged,
			store.ErrAbsent, catalog.ErrOutside, catalog.ErrGap, errPlanned,
		},
		leases.FailedSpace:   {restore.ErrSpace, restore.ErrSpaceAlongside, syscall.ENOSPC, &fs.PathError{Op: "write", Err: syscall.EDQUOT}},
		leases.FailedQuota:   {restore.ErrQuota},
		leases.FailedVersion: {restore.ErrVersion, store.ErrNewer},
		leases.FailedAuth:    {restore.ErrAuth},
		leases.FailedKey:     {store.ErrNoKey},
		"": {restore.ErrBusy, store.ErrForbidden, store.ErrNoBucket, store.ErrChanged, errNoBackups, context.DeadlineExceeded,
			errors.New("connection refused")},
	} {
		for _, err := range errs {
			if got := failureOf(fmt.Errorf("restore: %w", err)); got != want {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		}
	}
	for want, errs := range map[leases.RestoreFailure][]error{
		leases.FailedSpace:   {restore.ErrSpace, &fs.PathError{Op: "write", Err: syscall.ENOSPC}, syscall.EDQUOT},
		leases.FailedVersion: {restore.ErrVersion},
		leases.FailedData:    {survivor.ErrNoData, survivor.ErrDamagedLog, survivor.ErrRequest},
		"":                   {restore.ErrBusy, store.ErrAbsent, fs.ErrPermission, context.DeadlineExceeded},
	} {
		for _, err := range errs {
			if got := diskFailureOf(fmt.Errorf("build data: %w", err)); got != want {
				t.Errorf("%v from the own disk: %q, want %q", err, got, want)
			}
		}
	}
}

// TestOrderGivenUpAfterTwoFailures: an order is given up after two failures that are alike.
// One failure can pass although it looks as if it stayed. Two in a row that are alike do not.
func TestOrderGivenUpAfterTwoFailures(t *testing.T) {
	for _, mode := range []leases.RecoveryMode{leases.RecoverRestore, leases.RecoverBackup} {
		testGivenUp(t, &leases.Recovery{Mode: mode, Epoch: 2, Nonce: "bb"})
	}
	b := &Bootstrapper{log: slog.New(slog.DiscardHandler)}
	disk := &leases.Recovery{Mode: leases.RecoverSurvivor, Epoch: 2, Nonce: "bb"}
	for i, attempt := range []struct {
		err  error
		want leases.RestoreFailure
	}{
		{store.ErrAbsent, ""}, {store.ErrAbsent, ""}, {restore.ErrSpace, ""}, {restore.ErrSpace, leases.FailedSpace}, {fs.ErrPermission, ""},
	} {
		if b.fails(t.Context(), disk, attempt.err); b.failureIn(disk.Name()) != attempt.want {
			t.Errorf("attempt %d from the own disk, which ended with %v: failure %q, want %q", i+1, attempt.err, b.failureIn(disk.Name()), attempt.want)
		}
	}
}

// The disk report says how the last attempt ended. What ended an earlier one does not stay there.
func TestAFailureDoesNotStayInTheReport(t *testing.T) {
	var reported *leases.DiskReport
	b := &Bootstrapper{log: slog.New(slog.DiscardHandler), held: func(r *leases.DiskReport) { reported = r }}
	order := &leases.Recovery{Mode: leases.RecoverSurvivor, Epoch: 2, Nonce: "bb"}
	o := &observation{report: &leases.DiskReport{Order: order.Name(), Failed: leases.FailedSpace}}
	for i, attempt := range []struct {
		err  error
		want leases.RestoreFailure
	}{
		{restore.ErrSpace, ""}, {syscall.EDQUOT, leases.FailedSpace}, {fs.ErrPermission, ""}, {restore.ErrSpace, ""}, {restore.ErrSpace, leases.FailedSpace},
		{nil, ""}, {restore.ErrSpace, ""},
	} {
		if b.attempted(t.Context(), o, order, attempt.err); reported == nil || reported.Failed != attempt.want || reported.Order != order.Name() {
			t.Errorf("attempt %d, which ended with %v: %+v, want %q", i+1, attempt.err, reported, attempt.want)
		}
	}
}

func testGivenUp(t *testing.T, order *leases.Recovery) {
	t.Helper()
	other := &leases.Recovery{Mode: leases.RecoverRestore, Epoch: 3, Nonce: "cc"}
	passing := errors.New("connection refused")
	for name, test := range map[string]struct {
		attempts []error
		want     leases.RestoreFailure
	}{
		"one":                            {[]error{store.ErrAbsent}, ""},
		"two that are alike":             {[]error{store.ErrAbsent, store.ErrAbsent}, leases.FailedBackups},
		"two that differ":                {[]error{store.ErrAbsent, store.ErrNoKey}, ""},
		"three that differ in turn":      {[]error{store.ErrAbsent, store.ErrNoKey, store.ErrAbsent}, ""},
		"four that differ in turn":       {[]error{store.ErrAbsent, store.ErrNoKey, store.ErrAbsent, store.ErrNoKey}, leases.FailedKey},
		"one after three that are alike": {[]error{store.ErrAbsent, store.ErrAbsent, store.ErrAbsent, store.ErrNoKey}, ""},
		"four, and one of them passes":   {[]error{store.ErrAbsent, store.ErrNoKey, passing, store.ErrAbsent, store.ErrNoKey}, ""},
		"one that passes between them":   {[]error{store.ErrAbsent, passing, store.ErrAbsent}, ""},
		"two after one that passes":      {[]error{passing, store.ErrNoKey, store.ErrNoKey}, leases.FailedKey},
	} {
		t.Run(string(order.Mode)+"/"+name, func(t *testing.T) {
			b := &Bootstrapper{log: slog.New(slog.DiscardHandler)}
			for _, err := range test.attempts {
				b.fails(t.Context(), order, err)
			}
			if got := b.failureIn(order.Name()); got != test.want {
				t.Errorf("failure %q, want %q", got, test.want)
			}
			b.fails(t.Context(), other, store.ErrAbsent)
			if got := b.failureIn(other.Name()); got != "" {
				t.Errorf("the first attempt of another order counts as %q", got)
			}
		})
	}
}

// The plan of an order follows from the target, and must lead to the lineage that was approved, at least as far.
func TestAnOrderIsPlannedAsItWasApproved(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	const parent, child = catalog.Lineage("00000001-aa"), catalog.Lineage("00000002-bb")
	full := func(l catalog.Lineage, revision int64, at time.Time) catalog.Full {
		return catalog.Full{Lineage: l, Key: string(l), Revision: revision, At: at}
	}
	listed := catalog.Catalog{Histories: []catalog.History{
		{Lineage: parent, Formation: &catalog.Formation{Lineage: parent, Created: at}, Fulls: []catalog.Full{full(parent, 10, at)}, Deltas: []catalog.Delta{
			{Lineage: parent, Key: "delta", From: 11, To: 20, At: at.Add(time.Minute)}, {Lineage: parent, Key: "beyond", From: 21, To: 30, At: at.Add(2 * time.Minute)},
		}},
		{Lineage: child, Formation: &catalog.Formation{Lineage: child, Parent: parent, Fork: 20, Created: at.Add(time.Hour)},
			Fulls: []catalog.Full{full(child, 100, at.Add(time.Hour))}},
	}}
	restores := func(lineage catalog.Lineage, revision int64, target leases.RestoreTarget) leases.Recovery {
		return leases.Recovery{Mode: leases.RecoverRestore, Lineage: string(lineage), Revision: revision, Target: &target}
	}
	before := leases.RestoreTarget{Time: at.Add(30 * time.Minute)}
	for name, test := range map[string]struct {
		order leases.Recovery
		reach int64
		says  string
	}{
		"a time before the fork":          {restores(parent, 20, before), 20, ""},
		"the parent beyond the fork":      {restores(parent, 30, leases.RestoreTarget{Lineage: string(parent)}), 30, ""},
		"another lineage than approved":   {restores(child, 20, before), 0, "the recovery order names lineage 00000002-bb"},
		"less than approved":              {restores(parent, 21, before), 0, "reach revision 20, and the recovery order names 21"},
		"what is not there":               {restores(parent, 40, leases.RestoreTarget{Lineage: string(parent), Revision: 40}), 0, "does not hold revision 40"},
		"the newest state after a loss":   {leases.Recovery{Mode: leases.RecoverBackup, Lineage: string(child), Revision: 100}, 100, ""},
		"the parent of a lost raft group": {leases.Recovery{Mode: leases.RecoverBackup, Lineage: string(parent), Revision: 20}, 20, ""},
		"less than the order of a backup": {leases.Recovery{Mode: leases.RecoverBackup, Lineage: string(child), Revision: 101}, 0, "reach revision 100"},
	} {
		plan, err := planOrdered(listed, &test.order, string(child), nil)
		if test.says == "" && (err != nil || plan.Reach != test.reach) || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: reach %d, %v; want %d, %q", name, plan.Reach, err, test.reach, test.says)
		}
	}
}

// The new revision is above every known one, whatever the full backup has. It does not double with each restore.
func TestARestoreRaisesTheRevision(t *testing.T) {
	for _, test := range []struct{ known, full, want int64 }{
		{100, 90, 10 + restore.DefaultBump}, {100, 100, restore.DefaultBump}, {0, 90, restore.DefaultBump}, {3_000_000_000, 90, 2_999_999_910 + restore.DefaultBump},
	} {
		if got := bumpAbove(test.known, &catalog.Plan{Full: catalog.Full{Revision: test.full}}); got != test.want {
			t.Errorf("known %d, full backup at %d: %d, want %d", test.known, test.full, got, test.want)
		}
	}
}

// The record is read after a read that failed, and once in each raft term. An etcd without a quorum is one that missed two reads.
func TestWhenARunningEtcdReadsTheRecord(t *testing.T) {
	w := watched{}
	for i, look := range []struct {
		answers bool
		term    uint64
		serves  rules.Answer
		news    bool
	}{
		{true, 2, rules.Yes, true}, {true, 2, rules.Yes, false}, {true, 0, rules.Yes, false}, {true, 3, rules.Yes, true}, {false, 3, rules.Unknown, true},
		{false, 3, rules.No, true}, {false, 0, rules.No, true}, {true, 3, rules.Yes, false}, {false, 0, rules.Unknown, true}, {true, 4, rules.Yes, true},
	} {
		if serves, news := w.add(look.answers, look.term); serves != look.serves || news != look.news {
			t.Errorf("look %d: %s, %t; want %s, %t", i, serves, news, look.serves, look.news)
		}
	}
}
