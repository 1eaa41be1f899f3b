package start

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// alone is a Bootstrapper that needs neither Kubernetes nor a network.
func alone(t *testing.T) *Bootstrapper {
	t.Helper()
	return &Bootstrapper{
		cfg:       config.Config{ClusterUID: us.ClusterUID, Member: us.Member, VolumePath: t.TempDir()},
		addresses: func() ([]net.Addr, error) { return nil, nil },
	}
}

// TestUnreadableTraceRulesNothingOut: a trace of a cluster that cannot be read rules nothing out.
func TestUnreadableTraceRulesNothingOut(t *testing.T) {
	ours := datadir.IdentityFile{Cluster: us.ClusterUID, Formed: true}
	anothers := datadir.IdentityFile{Cluster: "x", Formed: true}
	attempt := datadir.IdentityFile{Cluster: us.ClusterUID}
	tests := map[string]struct {
		volume      volumeState
		quarantined func(t *testing.T, dir string)
		formed      uint32
		want        Evidence
	}{
		"no identity file was ever written": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile}, want: NeverFormed},
		"the record names a formed epoch": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile},
			formed: 1, want: FormedBefore},
		"this volume belongs to our group":                     {volume: volumeState{identityFile: ours}, want: FormedBefore},
		"this volume belongs to an attempt":                    {volume: volumeState{identityFile: attempt}, want: NeverFormed},
		"this volume was another's and is empty":               {volume: volumeState{identityFile: anothers}, want: NeverFormed},
		"the identity file of this volume cannot be read":      {volume: volumeState{identityFileErr: errors.New("EIO")}, want: EvidenceUnknown},
		"the identity file of this volume is of a later agent": {volume: volumeState{identityFileErr: datadir.ErrBadIdentityFile}, want: EvidenceUnknown},
		"quarantined data belongs to our group": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile},
			quarantined: stamped(ours), want: FormedBefore},
		"quarantined data belongs to an attempt": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile},
			quarantined: stamped(attempt), want: NeverFormed},
		"quarantined data has no identity file": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile},
			quarantined: func(*testing.T, string) {}, want: NeverFormed},
		"the identity file of quarantined data is of a later agent": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile},
			quarantined: written(`{"version":9}`), want: EvidenceUnknown},
		"the identity file of quarantined data is a directory, not a file": {volume: volumeState{identityFileErr: datadir.ErrNoIdentityFile},
			quarantined: unreadable, want: EvidenceUnknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := alone(t)
			if tc.quarantined != nil {
				dir := filepath.Join(b.cfg.VolumePath, volume.QuarantinePrefix+"0001-stale")
				must(t, os.Mkdir(dir, 0o700))
				tc.quarantined(t, dir)
			}
			o := observation{volume: tc.volume, record: recordState{record: leases.Record{FormedEpoch: tc.formed}}}
			if got, detail := b.evidence(t.Context(), &o); got != tc.want {
				t.Errorf("got %s (%s), want %s", got, detail, tc.want)
			}
		})
	}
}

func stamped(s datadir.IdentityFile) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, datadir.WriteIdentityFile(dir, s)) }
}

func written(content string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, volume.IdentityFileName), []byte(content), 0o600))
	}
}

func unreadable(t *testing.T, dir string) {
	must(t, os.Mkdir(filepath.Join(dir, volume.IdentityFileName), 0o700))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyDNSResponseShowsAbsence: only a response of DNS shows that a member is absent.
func TestOnlyDNSResponseShowsAbsence(t *testing.T) {
	tests := map[string]struct {
		err  error
		want Peers
	}{
		"the name does not exist":  {&net.DNSError{Err: "no such host", IsNotFound: true}, Silent},
		"the server fails":         {&net.DNSError{Err: "server misbehaving", IsTemporary: true}, Answering},
		"the server does not hear": {context.DeadlineExceeded, Answering},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := alone(t)
			b.lookup = func(context.Context, string) ([]string, error) { return nil, tc.err }
			o := observation{Facts: Facts{Peers: Silent}, details: map[string]string{}}
			if b.observePeers(t.Context(), &o); o.Peers != tc.want {
				t.Errorf("got %s, want %s", o.Peers, tc.want)
			}
		})
	}
}

// TestOnlyMemberReportsSoleData: the only member reports that no other has its data.
func TestOnlyMemberReportsSoleData(t *testing.T) {
	b := alone(t)
	if _, err := b.list(t.Context(), leases.Record{Members: []string{us.Member}, Seed: us.Member}, 0xc); !errors.Is(err, errOnlyMember) {
		t.Errorf("got %v, want %v", err, errOnlyMember)
	}
}

func TestTheDrainMarkOnOurLease(t *testing.T) {
	for name, tc := range map[string]struct {
		mark leases.RemovalRequest
		want Lease
	}{
		"no mark":                  {leases.RemovalRequest{}, Fresh},
		"asked, may be taken back": {leases.RemovalRequest{State: leases.RemovalRequested}, Leaving},
		"the removal is claimed":   {leases.RemovalRequest{State: leases.RemovalBegun}, RemovalAcknowledged},
		"removed":                  {leases.RemovalRequest{State: leases.RemovalDone}, RemovalAcknowledged},
		"an unreadable mark":       {leases.RemovalRequest{State: leases.RemovalUnreadable}, RemovalAcknowledged},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := classifyLease(us, ownLease{member: leases.Member{PodUID: us.PodUID, Removal: tc.mark}}); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWhoseTurnItIs(t *testing.T) {
	replacing := func(name string) *leases.Replacing { return &leases.Replacing{Member: name} }
	pendingRemoval := func(name string) *leases.PendingRemoval { return &leases.PendingRemoval{Member: name, Mark: "x"} }
	for name, tc := range map[string]struct {
		replacing      *leases.Replacing
		pendingRemoval *leases.PendingRemoval
		want           Slot
	}{
		"without one":                          {nil, nil, SlotFree},
		"another replaces itself":              {replacing("c-b"), nil, SlotTaken},
		"we do":                                {replacing("c-a"), nil, SlotOurs},
		"one that is not desired any more did": {replacing("c-x"), nil, SlotFree},
		"one that is not desired, and still listed": {&leases.Replacing{Member: "c-x", MemberID: "1"}, nil, SlotTaken},
		"another leaves": {nil, pendingRemoval("c-b"), SlotLeaving},
		"we leave, and our Lease does not say so":   {nil, pendingRemoval("c-a"), SlotLeaving},
		"one left that is not desired any more":     {nil, pendingRemoval("c-x"), SlotFree},
		"our replacement was begun before":          {replacing("c-a"), pendingRemoval("c-b"), SlotOurs},
		"a holder that is gone hides no drain":      {replacing("c-x"), pendingRemoval("c-b"), SlotLeaving},
		"a drain that is over hides no replacement": {replacing("c-b"), pendingRemoval("c-x"), SlotTaken},
	} {
		t.Run(name, func(t *testing.T) {
			record := leases.Record{Members: []string{"c-a", "c-b"}, Replacing: tc.replacing, PendingRemoval: tc.pendingRemoval}
			record.MemberList = &leases.MemberList{Members: []leases.ListedMember{{ID: "1"}}}
			if got, _ := classifySlot(us, record); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestLeavingMemberStaysWholeNoRejoin: a member that is asked to go stays whole and joins no more.
func TestLeavingMemberStaysWholeNoRejoin(t *testing.T) {
	member := Facts{
		Data: Intact, Listed: Voter, Own: OwnID, Record: Formed, Epoch: Current, Place: Desired, Lease: Leaving,
		Evidence: EvidenceUnknown, Peers: Answering, Backup: NoBackup, Order: NoOrder, Restores: rules.No, Slot: SlotLeaving, Needs: Met, Joining: NotJoining,
	}
	with := func(change func(*Facts)) Facts { f := member; change(&f); return f }
	lost := func(f *Facts) { f.Data, f.Own = Empty, OtherID }
	for name, tc := range map[string]struct {
		facts Facts
		want  string
	}{
		"asked, restarts":                      {member, "resume"},
		"claimed, restarts":                    {with(func(f *Facts) { f.Lease = RemovalAcknowledged }), "resume"},
		"asked, lost its data":                 {with(lost), "removal-requested"},
		"taken back, lost its data":            {with(func(f *Facts) { lost(f); f.Lease, f.Slot = Fresh, SlotFree }), "data-lost"},
		"claimed, lost its data":               {with(func(f *Facts) { lost(f); f.Lease = RemovalAcknowledged }), "removal-acknowledged"},
		"removed":                              {with(func(f *Facts) { f.Listed, f.Own, f.Lease = Unlisted, OtherID, RemovalAcknowledged }), "removal-acknowledged"},
		"asked, never joined":                  {with(func(f *Facts) { lost(f); f.Listed = Unconfirmed }), "removal-requested"},
		"another goes, a joiner waits":         {with(func(f *Facts) { lost(f); f.Lease, f.Listed = Fresh, Unconfirmed }), "await-removal"},
		"another goes, a replacement waits":    {with(func(f *Facts) { lost(f); f.Lease = Fresh }), "await-removal"},
		"another goes, a begun join goes on":   {with(func(f *Facts) { lost(f); f.Lease, f.Listed, f.Joining = Fresh, Unstarted, JoiningNow }), "finish-join"},
		"another goes, a removed one waits":    {with(func(f *Facts) { f.Lease, f.Listed, f.Own = Fresh, Unlisted, OtherID }), "await-removal"},
		"another goes, a good member restarts": {with(func(f *Facts) { f.Lease = Fresh }), "resume"},
		"another goes, a majority restarts":    {with(func(f *Facts) { f.Lease, f.Listed = Fresh, NoQuorum }), "resume-majority"},
		"asked, all of them restart":           {with(func(f *Facts) { f.Listed = NoQuorum }), "resume-majority"},
		"asked, removed before it was claimed": {with(func(f *Facts) { f.Listed, f.Own = Unlisted, OtherID }), "removal-requested"},
		"taken back, and was removed meanwhile": {with(func(f *Facts) { f.Listed, f.Own, f.Lease, f.Slot = Unlisted, OtherID, Fresh, SlotFree }),
			"removed-while-down"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.facts); got.Rule != tc.want {
				t.Errorf("got %s, want %s", got.Rule, tc.want)
			}
		})
	}
}
