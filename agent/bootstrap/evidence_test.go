package bootstrap

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

func TestATraceOfAClusterThatCannotBeReadRulesNothingOut(t *testing.T) {
	ours := datadir.Stamp{Cluster: us.ClusterUID, Formed: true}
	anothers := datadir.Stamp{Cluster: "x", Formed: true}
	attempt := datadir.Stamp{Cluster: us.ClusterUID}
	tests := map[string]struct {
		volume volumeState
		aside  func(t *testing.T, dir string)
		formed uint32
		want   Evidence
	}{
		"nothing was ever stamped":                    {volume: volumeState{stampErr: datadir.ErrNoStamp}, want: NeverFormed},
		"the record names a formed epoch":             {volume: volumeState{stampErr: datadir.ErrNoStamp}, formed: 1, want: FormedBefore},
		"this volume was stamped for our group":       {volume: volumeState{stamp: ours}, want: FormedBefore},
		"this volume was stamped for an attempt":      {volume: volumeState{stamp: attempt}, want: NeverFormed},
		"this volume was another's and is empty":      {volume: volumeState{stamp: anothers}, want: NeverFormed},
		"this volume's stamp cannot be read":          {volume: volumeState{stampErr: errors.New("EIO")}, want: EvidenceUnknown},
		"this volume's stamp is of a later agent":     {volume: volumeState{stampErr: datadir.ErrBadStamp}, want: EvidenceUnknown},
		"an aside was stamped for our group":          {volume: volumeState{stampErr: datadir.ErrNoStamp}, aside: stamped(ours), want: FormedBefore},
		"an aside was stamped for an attempt":         {volume: volumeState{stampErr: datadir.ErrNoStamp}, aside: stamped(attempt), want: NeverFormed},
		"an aside has no stamp":                       {volume: volumeState{stampErr: datadir.ErrNoStamp}, aside: func(*testing.T, string) {}, want: NeverFormed},
		"an aside's stamp is of a later agent":        {volume: volumeState{stampErr: datadir.ErrNoStamp}, aside: written(`{"version":9}`), want: EvidenceUnknown},
		"an aside's stamp is a directory, not a file": {volume: volumeState{stampErr: datadir.ErrNoStamp}, aside: unreadable, want: EvidenceUnknown},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := alone(t)
			if tc.aside != nil {
				dir := filepath.Join(b.cfg.VolumePath, volume.AsidePrefix+"0001-stale")
				must(t, os.Mkdir(dir, 0o700))
				tc.aside(t, dir)
			}
			o := observation{volume: tc.volume, record: recordState{record: leases.Record{FormedEpoch: tc.formed}}}
			if got, detail := b.evidence(t.Context(), &o); got != tc.want {
				t.Errorf("got %s (%s), want %s", got, detail, tc.want)
			}
		})
	}
}

func stamped(s datadir.Stamp) func(*testing.T, string) {
	return func(t *testing.T, dir string) { must(t, datadir.WriteStamp(dir, s)) }
}

func written(content string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, volume.StampFile), []byte(content), 0o600))
	}
}

func unreadable(t *testing.T, dir string) {
	must(t, os.Mkdir(filepath.Join(dir, volume.StampFile), 0o700))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOnlyADNSThatAnswersSaysThatNoOneIsThere(t *testing.T) {
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

func TestTheOnlyMemberIsReportedThatNoOneElseHoldsItsData(t *testing.T) {
	b := alone(t)
	if _, err := b.list(t.Context(), leases.Record{Members: []string{us.Member}, Seed: us.Member}, 0xc); !errors.Is(err, errOnlyMember) {
		t.Errorf("got %v, want %v", err, errOnlyMember)
	}
}
