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

// choosePlan returns first, the plan that leads to the target, or a plan that leads there without the damaged objects
// that earlier attempts found. around are the objects that this plan skips. If there is no such plan, the error says
// what the user can do. The agent plans again after each listing, so the result applies to the current content of the
// store.
func (r *restores) choosePlan(c catalog.Catalog, t catalog.Target, first catalog.Plan, now time.Time) (plan catalog.Plan, around []string, err error) {
	f := FallbackFacts{Damage: r.damageOf(first, now), Rest: RestNone}
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

// damageOf returns what is known about damage to the objects of a plan.
func (r *restores) damageOf(p catalog.Plan, now time.Time) Damage {
	switch {
	case len(r.harmed(p)) == 0:
		return Unharmed
	case now.Sub(r.at) < spoiledFor:
		return DamageNew
	default:
		return DamageOld
	}
}

// harmed returns the objects of a plan that were found damaged.
func (r *restores) harmed(p catalog.Plan) []string {
	return slices.DeleteFunc(objectsOf(p), func(key string) bool { return r.damaged[key] == nil })
}

// notes lists what a plan without the damaged objects leaves out. A full backup can contain slightly more than its
// name says, which only the backups after it show.
func (r *restores) notes(first catalog.Plan, keys []string) []string {
	var notes []string
	for _, key := range keys {
		notes = append(notes, fmt.Sprintf("%s is left out: %v", key, r.damaged[key]))
	}
	if r.damaged[first.Full.Key] != nil && len(first.Deltas) == 0 && (first.Revision == 0 || first.Reach < first.Revision) {
		notes = append(notes, fmt.Sprintf("changes in %s after revision %d, if there are any, are not restored", first.Full.Key, first.Reach))
	}
	return notes
}

// blocked returns an error with the damage, where the backups lead without the damaged objects, and what the user can
// do.
func (r *restores) blocked(first, rest catalog.Plan, lost error) error {
	harmed := r.harmed(first)
	without := "without it"
	for key := range r.damaged {
		if key != harmed[0] {
			without = "without it and all other damaged objects (" + strings.Join(slices.Sorted(maps.Keys(r.damaged)), ", ") + "),"
		}
	}
	leads := fmt.Errorf("%s the backups reach revision %d of lineage %s instead of revision %d of lineage %s", without,
		rest.Reach, rest.Full.Lineage, first.Reach, first.Full.Lineage)
	if lost != nil {
		leads = fmt.Errorf("%s the backups cannot reach the requested state: %w", without, lost)
	}
	return fmt.Errorf("%w; %w; the agent does not restore less than requested; replace %s with a valid copy, or select an earlier state in "+
		"spec.bootstrap.restore.to of a new EtcdCluster; or restore it without a cluster (agent backup restore --without %s)",
		r.damaged[harmed[0]], leads, harmed[0], strings.Join(slices.Sorted(maps.Keys(r.damaged)), " --without "))
}

// damagedIn returns the object of a plan that a restore found damaged or mismatched with its name. It returns none if
// the error concerns access to the store, names no object of the plan, or names several.
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
		// These errors mention the key only in their text.
		text := err.Error()
		named = slices.DeleteFunc(slices.Clone(objects), func(key string) bool { return !strings.Contains(text, key) })
	}
	if len(named) != 1 || !slices.Contains(objects, named[0]) {
		return "", false
	}
	return named[0], true
}

// objectsOf returns the keys of a plan. A restore from a file has none.
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

// reportAround adds the skipped damaged objects to the reported progress of a restore.
func reportAround(around []string, inform func(string)) func(string) {
	if len(around) == 0 {
		return inform
	}
	return func(words string) {
		inform(words + ", without the objects that are damaged: " + strings.Join(around, ", "))
	}
}

// lastKnown is the last readable content of the member Lease and of the record since etcd last ran on this volume or
// the volume was cleared. A Lease that cannot be read allows a Resume, but evidence against the data that was read a
// moment ago still counts.
type lastKnown struct {
	own    *leases.Member
	record *leases.Record
}

// forgetVolume drops the results of the inspection and the evidence against the volume, because both no longer apply.
func (b *Bootstrapper) forgetVolume() { b.inspects, b.holding, b.lastKnown = nil, nil, lastKnown{} }

// hear stores what could be read.
func (h *lastKnown) hear(own ownLease, r recordState) {
	if own.err == nil {
		h.own = &own.member
	}
	if r.err == nil {
		h.record = &r.record
	}
}

// against adds evidence from earlier reads to the facts for what cannot be read now, as far as it excludes the data or
// this Pod.
func (h lastKnown) against(cfg config.Config, v volumeState, f *Facts, note func(fact, detail string)) {
	own := ownLease{err: errUnheard}
	if h.own != nil {
		own = ownLease{member: *h.own}
	}
	if f.Lease == LeaseUnread && h.own != nil {
		data, detail := classifyData(cfg, v, own)
		f.Data = data
		note("data", detail)
		if lease, detail := classifyLease(cfg, own); lease == Superseded {
			f.Lease = lease
			note("lease", detail)
		}
		if classifyEpoch(cfg, v, own, recordState{err: errUnheard}) == Fenced {
			f.Epoch = Fenced
		}
	}
	if f.Record == RecordUnread && h.record != nil {
		f.Epoch = classifyEpoch(cfg, v, own, recordState{record: *h.record})
	}
}

// errUnheard: an object was not read since etcd last ran on the volume.
var errUnheard = errors.New("not read since the last start of etcd")
