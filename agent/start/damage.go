package start

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

// steer is first, which leads to the target, or where it holds what attempts found damaged, a plan that leads there too: around are
// the objects that it does without. The error says what a person is to do where there is none. That is asked again with each listing,
// so it holds for what is in the store now.
func (r *restores) choosePlan(c catalog.Catalog, t catalog.Target, first catalog.Plan, now time.Time) (plan catalog.Plan, around []string, err error) {
	f := FallbackFacts{Damage: r.damageKind(first, now), Rest: RestNone}
	var rest catalog.Plan
	var lost error
	keys := slices.Sorted(maps.Keys(r.damaged))
	if f.Damage != Unharmed {
		for _, key := range keys {
			t = t.Except(key)
		}
		rest, lost = c.Plan(t)
		f.Rest = restOf(first, rest, r.plan, lost)
	}
	switch decideFallback(f).Verdict {
	case CourseDirect:
		if f.Damage == DamageOld {
			r.damaged = nil
		}
		return first, nil, nil
	case CourseFallback:
		rest.Notes = slices.Concat(r.notes(first, keys), rest.Notes)
		return rest, keys, nil
	default:
		return catalog.Plan{}, nil, r.blocked(first, rest, lost)
	}
}

// harm says what is known of a plan's objects.
func (r *restores) damageKind(p catalog.Plan, now time.Time) Damage {
	switch {
	case len(r.harmed(p)) == 0:
		return Unharmed
	case now.Sub(r.at) < spoiledFor:
		return DamageNew
	default:
		return DamageOld
	}
}

// harmed are a plan's objects that were found damaged.
func (r *restores) harmed(p catalog.Plan) []string {
	return slices.DeleteFunc(objectsOf(p), func(key string) bool { return r.damaged[key] == nil })
}

// notes say what a detour does without. A full may hold a little more than its name promises, which only what follows it reports.
func (r *restores) notes(first catalog.Plan, keys []string) []string {
	var notes []string
	for _, key := range keys {
		notes = append(notes, fmt.Sprintf("%s is left out: %v", key, r.damaged[key]))
	}
	if r.damaged[first.Full.Key] != nil && len(first.Deltas) == 0 && (first.Revision == 0 || first.Reach < first.Revision) {
		notes = append(notes, fmt.Sprintf("what %s held of after revision %d, if anything, is not in it", first.Full.Key, first.Reach))
	}
	return notes
}

// blocked says which damage is in the way, what the backups lead to without it, and what to do.
func (r *restores) blocked(first, rest catalog.Plan, lost error) error {
	harmed := r.harmed(first)
	without := "without it"
	for key := range r.damaged {
		if key != harmed[0] {
			without = "without it, and without what else was found damaged (" + strings.Join(slices.Sorted(maps.Keys(r.damaged)), ", ") + "),"
		}
	}
	leads := fmt.Errorf("%s the backups lead to revision %d of lineage %s, and not to revision %d of lineage %s", without,
		rest.Reach, rest.Full.Lineage, first.Reach, first.Full.Lineage)
	if lost != nil {
		leads = fmt.Errorf("%s nothing leads there: %w", without, lost)
	}
	return fmt.Errorf("%w; %w; less than what is asked for is not restored by itself: put a good copy of %s in its place, name an earlier state in "+
		"spec.bootstrap.restore.to of a new EtcdCluster, or restore it without a cluster (agent backup restore --without %s)",
		r.damaged[harmed[0]], leads, harmed[0], strings.Join(slices.Sorted(maps.Keys(r.damaged)), " --without "))
}

// damagedIn is the object of a plan that an attempt proved to be damaged, or to be another one than its name says. It is none where the
// error is about the way to it, or names no object of the plan, or more than one.
func damagedIn(p catalog.Plan, err error) (key string, found bool) {
	objects := objectsOf(p)
	var named []string
	full, isFull := errors.AsType[*snapshot.DamagedError](err)
	part, isPart := errors.AsType[*delta.DamagedError](err)
	switch {
	case isFull:
		named = []string{full.Object}
	case isPart:
		named = []string{part.Object}
	case errors.Is(err, restore.ErrSwapped), errors.Is(err, store.ErrDamaged):
		// They are words around a key.
		text := err.Error()
		named = slices.DeleteFunc(slices.Clone(objects), func(key string) bool { return !strings.Contains(text, key) })
	}
	if len(named) != 1 || !slices.Contains(objects, named[0]) {
		return "", false
	}
	return named[0], true
}

// objectsOf are the keys of a plan; none of a file's.
func objectsOf(p catalog.Plan) []string {
	if p.Full.Key == "" {
		return nil
	}
	keys := []string{p.Full.Key}
	for _, d := range p.Deltas {
		keys = append(keys, d.Key)
	}
	return keys
}

// tellAround adds to what is informed of a restore what it does without.
func reportAround(around []string, inform func(string)) func(string) {
	if len(around) == 0 {
		return inform
	}
	return func(words string) {
		inform(words + ", without what is damaged: " + strings.Join(around, ", "))
	}
}

// heard is what our own Lease and the record said when they could be read last, since etcd last ran on this volume, or it was cleared.
// A Lease that cannot be read reports nothing, and lets Resume pass; but what spoke against the data a moment before has not gone.
type lastKnown struct {
	own    *leases.Member
	record *leases.Record
}

// forgetVolume: what was found on it, and what spoke against that, holds no longer.
func (b *Bootstrapper) forgetVolume() { b.inspects, b.lastKnown = nil, lastKnown{} }

// hear keeps what could be read.
func (h *lastKnown) hear(own ownLease, r recordState) {
	if own.err == nil {
		h.own = &own.member
	}
	if r.err == nil {
		h.record = &r.record
	}
}

// against adds to the facts what was heard from whom cannot be read now, as far as it speaks against the data or against us.
func (h lastKnown) against(cfg config.Config, v volumeState, f *Facts, note func(fact, detail string)) {
	if f.Lease == LeaseUnread && h.own != nil {
		own := ownLease{member: *h.own}
		data, detail := classifyData(cfg, v, own)
		f.Data = data
		note("data", detail)
		if lease, detail := classifyLease(cfg, own); lease == Superseded {
			f.Lease = lease
			note("lease", detail)
		}
	}
	if f.Record == RecordUnread && h.record != nil {
		f.Epoch = classifyEpoch(cfg, v, recordState{record: *h.record})
	}
}
