package leases

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/test/golden"
)

func TestADefragmentationReadsBack(t *testing.T) {
	for name, want := range map[string]Defragmentation{
		"done": {At: time.Date(2026, 11, 21, 3, 0, 5, 0, time.UTC), Result: "defragmented", Took: 7412 * time.Millisecond, Before: 1 << 31, After: 1 << 29},
		"left": {At: time.Date(2026, 11, 21, 3, 0, 5, 0, time.UTC), Result: "left", Took: time.Second, Before: 1 << 31},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := want.format()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ParseDefragmentation(text), want); diff != "" {
				t.Errorf("%s (-got +want)\n%s", text, diff)
			}
		})
	}
	const frozen = `{"at":"2026-11-21T03:00:05Z","result":"defragmented","took":"7.412s","before":2147483648,"after":536870912}`
	if got, _ := ParseDefragmentation(frozen).format(); got != frozen {
		t.Errorf("written as %s, want %s", got, frozen)
	}
	for _, text := range []string{"", "yes", `{"took":"often"}`} {
		if got := ParseDefragmentation(text); got != (Defragmentation{}) {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
}

// fullRecord has every field set.
func fullRecord() Record {
	return Record{
		ClusterID: 0xcdf818194e3a8c32, Phase: PhaseFormed, Seed: "demo-abcde", Epoch: 2, FormedEpoch: 2,
		Nonce: "k3v9", Executor: "pod-uid", Lineage: "00000002-k3v9", MaxLearners: 16,
		Members:        []string{"demo-abcde", "demo-fghij"},
		Replacing:      &Replacing{Member: "demo-abcde", PodUID: "pod-uid", MemberID: "8e9e05c52164694d"},
		PendingRemoval: &PendingRemoval{Member: "demo-fghij", Mark: "x7k2p"},
		Recovery: &Recovery{
			Epoch: 3, Nonce: "0011223344556677", Stage: StageExecute, Mode: RecoverSurvivor, Chosen: "demo-abcde", Report: "0123456789abcdef",
			GiveUp: []string{"demo-fghij"}, Known: 1700, Plan: "8c1f0d2e", Revisions: 3, Seconds: 20,
		},
		Attempt:   &RecoveryAttempt{Order: "3-0011223344556677", Nonce: "8899aabbccddeeff", PodUID: "pod-uid", ClusterID: "cdf818194e3a8c33"},
		Released:  1,
		Fork:      &Fork{Parent: "00000001-k3v9", Revision: 1200, At: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)},
		Recovered: &Recovered{Epoch: 2, Mode: RecoverBackup, Member: "demo-abcde", Revision: 1000001200, Plan: "77aa"},
		MemberList: &MemberList{RaftTerm: 3, RaftIndex: 42, Members: []ListedMember{
			{ID: "8e9e05c52164694d", Name: "demo-abcde", PeerURL: "http://demo-abcde.demo-peer:2380"},
			{ID: "1", PeerURL: "http://demo-fghij.demo-peer:2380", Learner: true},
		}},
		Externals: []string{"8e9e05c52164694d", "a1"},
		Leaving:   true,
	}
}

// fullMember has every field set that an agent writes.
func fullMember() Member {
	return Member{
		ID: 0x8e9e05c52164694d, Role: RoleLeader, ClusterID: 0xcdf818194e3a8c32, Lineage: "00000002-k3v9", Epoch: 2,
		Raft:     Raft{Term: 3, Committed: 42, LastTerm: 3, LastIndex: 43},
		Floor:    Raft{Term: 2, Committed: 40, LastTerm: 2, LastIndex: 40},
		Revision: 7, DBSize: 8192, DBSizeInUse: 4096, VolumeFree: 16384, Version: "3.6.16", AgentVersion: "v0.1.0",
		Snapshots: Snapshots{Entries: 10000, PodUID: "3f0c2a52-7a0e-4f0e-9a43-0c9f0d1f2b11"},
		Data:      "intact", Rule: "resume", Reason: "why \"so\"", Alarm: "full: delete keys",
		Fsync: Fsync{SpeedSlow, 128 * time.Millisecond},
	}
}

// apply applies a merge patch as the API server does.
func apply(t testing.TB, lease *coordinationv1.Lease, patch any) *coordinationv1.Lease {
	t.Helper()
	before, err := json.Marshal(lease)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, raw)
	if err != nil {
		t.Fatal(err)
	}
	var out coordinationv1.Lease
	if err := json.Unmarshal(after, &out); err != nil {
		t.Fatalf("%v in %s", err, after)
	}
	return &out
}

// TestRecordPatchHasWholeRecordOnly: a record patch reports the whole record and nothing else.
func TestRecordPatchHasWholeRecordOnly(t *testing.T) {
	foreign := map[string]string{"someone.else/key": "stays"}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: foreign}}
	for _, record := range []Record{fullRecord(), {Phase: PhaseForming, Epoch: 1}} {
		patch, err := record.patch("7")
		if err != nil {
			t.Fatal(err)
		}
		lease = apply(t, lease, patch)
		got, err := DecodeRecord(lease)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, record); diff != "" {
			t.Errorf("(-got +want)\n%s", diff)
		}
		if lease.Annotations["someone.else/key"] != "stays" {
			t.Errorf("a foreign annotation was lost: %v", lease.Annotations)
		}
	}
}

func TestMemberPatch(t *testing.T) {
	lease := func() *coordinationv1.Lease {
		return apply(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			AnnotationPodUID: "pod", AnnotationVolumeUID: "volume", AnnotationRemoval: `{"state":"requested","mark":"x7k2p"}`,
		}}}, MemberPatch{Member: fullMember()}.mustEncode(t))
	}
	known := func(change func(*Member)) Member {
		m := fullMember()
		m.PodUID, m.VolumeUID, m.Removal = "pod", "volume", RemovalRequest{State: RemovalRequested, Mark: "x7k2p"}
		change(&m)
		return m
	}
	for name, test := range map[string]struct {
		patch Member
		want  Member
	}{
		"what is unknown stays as it was":   {Member{}, known(func(*Member) {})},
		"druid's marks are not the agent's": {Member{PodUID: "other", VolumeUID: "other", Removal: RemovalRequest{State: RemovalDone}}, known(func(*Member) {})},
		"a new ID drops the old floor": {Member{ID: 5, Role: RoleLearner}, known(func(m *Member) {
			m.ID, m.Role, m.Raft, m.Floor, m.Alarm, m.Fsync = 5, RoleLearner, Raft{}, Raft{}, "", Fsync{}
		})},
		"a rule without reason drops the other": {Member{Rule: "join"}, known(func(m *Member) { m.Rule, m.Reason = "join", "" })},
		"a new size leaves the rest alone":      {Member{DBSize: 1}, known(func(m *Member) { m.DBSize = 1 })},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeMember(apply(t, lease(), MemberPatch{Member: test.patch}.mustEncode(t)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

func (p MemberPatch) mustEncode(t testing.TB) leasePatch {
	t.Helper()
	patch, err := p.encode()
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func TestRenewTimeMovesOnlyWhenItIsSet(t *testing.T) {
	now := time.Unix(1700000000, 0)
	lease := apply(t, &coordinationv1.Lease{}, MemberPatch{RenewTime: &now, Duration: 45 * time.Second}.mustEncode(t))
	lease = apply(t, lease, MemberPatch{Member: fullMember()}.mustEncode(t))
	if lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.Time.Equal(now) || *lease.Spec.LeaseDurationSeconds != 45 {
		t.Errorf("spec %+v, want the renewTime and the duration of the first patch", lease.Spec)
	}
}

// TestMemberPatchStaysSmall: a member patch stays small whatever the reason.
func TestMemberPatchStaysSmall(t *testing.T) {
	now := time.Unix(1700000000, 123456000)
	m := fullMember()
	m.Reason = strings.Repeat("\x01\"ü", 4000)
	raw, err := json.Marshal(MemberPatch{Member: m, RenewTime: &now, Duration: time.Minute, At: "12345678901234567890"}.mustEncode(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > MaxMemberPatch || !strings.Contains(string(raw), "reason") {
		t.Errorf("%d bytes, want at most %d and part of the reason:\n%s", len(raw), MaxMemberPatch, raw)
	}
}

func TestEncodedLeasesAreFrozen(t *testing.T) {
	now := time.Unix(1700000000, 0).UTC()
	record := &coordinationv1.Lease{}
	if err := fullRecord().Encode(record); err != nil {
		t.Fatal(err)
	}
	member := apply(t, &coordinationv1.Lease{}, MemberPatch{Member: fullMember(), RenewTime: &now, Duration: 45 * time.Second}.mustEncode(t))
	for name, lease := range map[string]*coordinationv1.Lease{"record": record, "member": member} {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(lease)
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, filepath.Join("testdata", name+".yaml"), string(got))
		})
	}
}

func FuzzRaft(f *testing.F) {
	f.Add("")
	f.Add(fullMember().Raft.String())
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRaft(s)
		switch {
		case err != nil && !errors.Is(err, ErrUnreadable):
			t.Errorf("%q: %v, want ErrUnreadable", s, err)
		case err == nil && s != "" && r.String() != s:
			t.Errorf("%q is read as %q", s, r)
		}
	})
}

func FuzzMember(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint8(0), uint32(3), uint64(4), uint64(5), int64(6), "text", "reason")
	f.Fuzz(func(t *testing.T, id, cluster uint64, role uint8, epoch uint32, term, index uint64, size int64, text, reason string) {
		want := Member{
			ID: id, ClusterID: cluster, Epoch: epoch, Lineage: text, Version: text, Data: text, Rule: text,
			Revision: max(size, 0), DBSize: max(size, 0),
		}
		if id != 0 {
			want.Role = []Role{RoleLeader, RoleMember, RoleLearner}[role%3]
			want.Raft, want.Floor = Raft{Term: term, Committed: index}, Raft{LastTerm: term, LastIndex: index}
		}
		if text != "" {
			want.Reason = reason
		}
		if len(text) > 100 || len(reason) > 200 || !validJSONText(text) || !validJSONText(reason) {
			return // neither the agent nor the API server lets such texts through
		}
		got, err := DecodeMember(apply(t, &coordinationv1.Lease{}, MemberPatch{Member: want}.mustEncode(t)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("(-got +want)\n%s", diff)
		}
	})
}

// validJSONText: JSON has only valid UTF-8, and so the API server never sees anything else.
func validJSONText(s string) bool { return strings.ToValidUTF8(s, "") == s }

func FuzzDecode(f *testing.F) {
	f.Add("holder", annotationRaft, "value", annotationEpoch, "1")
	f.Fuzz(func(t *testing.T, holder, key1, value1, key2, value2 string) {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
		lease.Annotations = map[string]string{key1: value1, key2: value2}
		if _, err := DecodeMember(lease); err != nil && !errors.Is(err, ErrUnreadable) {
			t.Errorf("member: %v, want ErrUnreadable", err)
		}
		if _, err := DecodeRecord(lease); err != nil && !errors.Is(err, ErrUnreadable) {
			t.Errorf("record: %v, want ErrUnreadable", err)
		}
	})
}

// The slot names one ID. The list of a quorum shows each removal before, and the slot is not taken while one can be in progress.
func TestTakenSlotKeepsEarlierRemovals(t *testing.T) {
	list := func(ids ...uint64) (l MemberList) {
		for _, id := range ids {
			l.Add(id, "", nil, false)
		}
		return l
	}
	published := list(1, 2, 3)
	record := Record{MemberList: &published, Replacing: &Replacing{Member: "demo-a", PodUID: "pod-1", MemberID: "1"}}
	for name, test := range map[string]struct {
		want    Replacing
		listed  MemberList
		refused bool
	}{
		"another member, after the removal":        {Replacing{"demo-b", "pod-2", "2"}, list(2, 3), false},
		"another member, and the removal can come": {Replacing{"demo-b", "pod-2", "2"}, list(1, 2, 3), true},
		"a later ID of the same member":            {Replacing{"demo-a", "pod-3", "4"}, list(2, 3, 4), false},
		"a later Pod for the same ID":              {Replacing{"demo-a", "pod-3", "1"}, list(1, 2, 3), false},
	} {
		taken, err := record.Replace(test.want, test.listed)
		if errors.Is(err, ErrSlot) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (*taken.Replacing != test.want || !slices.Equal(taken.MemberList.Members, test.listed.Members)) {
			t.Errorf("%s: slot %+v, list %+v", name, taken.Replacing, taken.MemberList)
		}
	}
}
