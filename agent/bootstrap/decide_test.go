package bootstrap

import (
	"fmt"
	"hash/fnv"
	"iter"
	"math/bits"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/golden"
)

// each yields each one-bit value of the mask all.
func each[T ~uint8](all T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for b := T(1); b != 0 && b <= all; b <<= 1 {
			if all&b != 0 && !yield(b) {
				return
			}
		}
	}
}

// eachFacts calls visit for every combination of facts with data: some three million.
func eachFacts(data Data, visit func(Facts)) {
	f := Facts{Data: data}
	for f.Listed = range each(Listed(anyListed)) {
		for f.Own = range each(Own(anyOwn)) {
			for f.Record = range each(Record(anyRecord)) {
				for f.Epoch = range each(Epoch(anyEpoch)) {
					for f.Place = range each(Place(anyPlace)) {
						for f.Lease = range each(Lease(anyLease)) {
							eachInner(f, visit)
						}
					}
				}
			}
		}
	}
}

func eachInner(f Facts, visit func(Facts)) {
	for f.Evidence = range each(Evidence(anyEvidence)) {
		for f.Peers = range each(Peers(anyPeers)) {
			for f.Backup = range each(Backup(anyBackup)) {
				for f.Order = range each(Order(anyOrder)) {
					for f.Slot = range each(Slot(anySlot)) {
						for f.Needs = range each(Needs(anyNeeds)) {
							for f.Joining = range each(Joining(anyJoining)) {
								visit(f)
							}
						}
					}
				}
			}
		}
	}
}

// broken names the promise that a decision breaks, or nothing.
func broken(f Facts, d Decision) string {
	continues := f.Data == Intact && f.Epoch != Fenced
	births := d.Mode == ModeNew || d.Mode == ModeRestore || d.Mode == ModeForceNew
	changes := births || d.Mode == ModeJoin || d.Mode == ModeReplaceSelf || d.Mode == ModeRejoin
	switch {
	case d.Rule == "uncovered":
		return "no rule covers it"
	// Above the table.
	case changes && (f.Lease != Fresh || f.Record&(RecordUnread|RecordAbsent) != 0):
		return "R1: acts without a fresh record and a Lease that is ours"
	case d.Mode == ModeResume && f.Lease == Superseded:
		return "R1: two Pods of one name run"
	case d.Mode == ModeResume && f.Data != Intact:
		return "R3: starts on data that is not intact"
	case d.Mode == ModeResume && f.Epoch == Fenced:
		return "a start under an old raft ID of a fenced group"
	case d.Mode == ModeResume && f.Listed != NoQuorum && (f.Listed&isListed == 0 || f.Own != OwnID):
		return "R4: starts an ID that the quorum does not list as ours"
	case d.Mode == ModeRejoin && f.Listed != Unlisted:
		return "R5: gives up data on the word of less than two lists"
	// Never two clusters from one EtcdCluster.
	case births && f.Listed != NoQuorum:
		return "a second cluster beside one that answers"
	case d.Mode == ModeNew && (f.Record&isForming == 0 || f.Place != Seed):
		return "a birth that the record does not give to us"
	case d.Mode == ModeNew && (f.Evidence != NeverFormed || f.Peers != Silent || f.Backup != NoBackup || f.Order != NoOrder):
		return "a birth although a cluster may have been formed"
	case (d.Mode == ModeNew || d.Mode == ModeRestore && f.Record != Recovering) && continues:
		return "a birth over data that could be continued"
	case births && f.Record&(Formed|FormedIncomplete) != 0:
		return "a second birth of a formed cluster"
	case d.Mode == ModeRestore && (f.Order != OrderRestore || f.Backup != BackupPresent),
		d.Mode == ModeForceNew && f.Order != OrderForce:
		return "an order that nobody gave"
	case births && f.Record&isForming != 0 && f.Backup&(BackupUnusable|StoreUnreachable) != 0:
		return "a birth although it is not known what the store holds"
	// Never fewer voters than a quorum by our own hand.
	case d.Mode == ModeReplaceSelf && f.Listed&isListed == 0:
		return "removes a member that no quorum lists"
	case d.Mode == ModeReplaceSelf && (f.Slot&(SlotTaken|SlotLeaving) != 0 || f.Needs != Met):
		return "removes a member that cannot come back, or a second one at once"
	case (d.Mode == ModeJoin || d.Mode == ModeRejoin) && f.Slot == SlotLeaving && f.Record != Recovering && f.Joining != JoiningNow:
		return "joins beside a member that is on its way out"
	case d.Mode == ModeReplaceSelf && continues && f.Own == OwnID:
		return "removes a member whose data is good"
	case (d.Mode == ModeJoin || d.Mode == ModeReplaceSelf) && (f.Record != Formed || f.Place == Undesired):
		return "joins a cluster that is not formed, or that does not want it"
	case d.Mode == ModeJoin && continues:
		return "joins although its data could be continued"
	case d.Mode == ModeJoin && f.Listed&isListed != 0 && f.Joining != JoiningNow:
		return "R4: starts a listed ID without its data"
	// A member that can come back does, whatever Kubernetes says.
	case continues && f.Lease != Superseded && f.Listed&isListed != 0 && f.Own == OwnID && d.Mode != ModeResume:
		return "a good member of a quorum does not come back"
	case continues && f.Lease != Superseded && f.Listed == NoQuorum && f.Record != Recovering && d.Mode != ModeResume:
		return "a majority that restarts does not re-form"
	case f.Data&(Foreign|Newer|DataUnread) != 0 && d.Mode != ModeRefuse:
		return "touches data that is not ours to touch"
	}
	return ""
}

// TestDecideIsSafeForAllFacts also freezes the table: its rows with the number of combinations that each decides, and a
// hash over every single decision.
func TestDecideIsSafeForAllFacts(t *testing.T) {
	type tally struct {
		fired  map[string]int
		errors []string
		hash   uint64
	}
	tallies := map[Data]*tally{}
	t.Run("enumerate", func(t *testing.T) {
		for data := range each(Data(anyData)) {
			one := &tally{fired: map[string]int{}}
			tallies[data] = one
			t.Run(data.String(), func(t *testing.T) {
				t.Parallel()
				index := map[string]byte{}
				for i, r := range startRules {
					index[r.name] = byte(i)
				}
				counts := make([]int, 256)
				hash := fnv.New64a()
				buffer := make([]byte, 0, 1<<16)
				eachFacts(data, func(f Facts) {
					d := Decide(f)
					if promise := broken(f, d); promise != "" && len(one.errors) < 3 {
						one.errors = append(one.errors, fmt.Sprintf("%v: %s: %s", f.LogValue(), d.Rule, promise))
					}
					counts[index[d.Rule]]++
					if buffer = append(buffer, index[d.Rule]); len(buffer) == cap(buffer) {
						_, _ = hash.Write(buffer)
						buffer = buffer[:0]
					}
				})
				_, _ = hash.Write(buffer)
				one.hash = hash.Sum64()
				for name, i := range index {
					one.fired[name] = counts[i]
				}
				for _, e := range one.errors {
					t.Error(e)
				}
			})
		}
	})
	fired, all, hash := map[string]int{}, 0, fnv.New64a()
	for data := range each(Data(anyData)) {
		for name, n := range tallies[data].fired {
			fired[name] += n
			all += n
		}
		_, _ = fmt.Fprint(hash, tallies[data].hash)
	}
	golden.Section(t, "../../docs/decisions.md", "start", render(t, fired, all, hash.Sum64()))
}

func render(t *testing.T, fired map[string]int, all int, hash uint64) string {
	var rows [][]string
	for _, r := range startRules {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		mode := "**" + string(r.mode) + "**"
		if r.when.Record == Recovering && r.when.Order != 0 {
			mode += " (reserved)"
		}
		rows = append(rows, []string{r.name, cells(r.when), mode, r.why, fmt.Sprint(fired[r.name])})
	}
	return "## How a member starts: bootstrap.rules\n\n" +
		"Asked by each member's agent whenever its etcd does not run. Only the facts that a row looks at are named. Reserved " +
		"rows are about orders to a cluster that is recovering, which nothing gives yet. A backup store is asked only where without " +
		"it the decision would be first-boot.\n\n" +
		golden.Table([]string{"rule", "when", "decision", "why it is safe, or what is awaited", "cases"}, rows) +
		fmt.Sprintf("\n%d combinations of facts; hash of all decisions %016x.\n", all, hash)
}

// cells names the facts of a row.
func cells(w Facts) string {
	var parts []string
	add := func(fact string, mask uint8, words []string) {
		if mask == 0 {
			return
		}
		var held []string
		for b := range each(mask) {
			held = append(held, words[bits.TrailingZeros8(b)])
		}
		parts = append(parts, fact+": "+strings.Join(held, ", "))
	}
	add("data", uint8(w.Data), dataWords)
	add("listed", uint8(w.Listed), listedWords)
	add("own", uint8(w.Own), ownWords)
	add("record", uint8(w.Record), recordWords)
	add("epoch", uint8(w.Epoch), epochWords)
	add("place", uint8(w.Place), placeWords)
	add("lease", uint8(w.Lease), leaseWords)
	add("evidence", uint8(w.Evidence), evidenceWords)
	add("peers", uint8(w.Peers), peersWords)
	add("backup", uint8(w.Backup), backupWords)
	add("order", uint8(w.Order), orderWords)
	add("slot", uint8(w.Slot), slotWords)
	add("needs", uint8(w.Needs), needsWords)
	add("joining", uint8(w.Joining), joiningWords)
	if len(parts) == 0 {
		return "always"
	}
	return strings.Join(parts, "<br>")
}
