package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

// runAlongside runs `backup run` alongside a member. stop ends it as a signal does, and waits.
func runAlongside(t *testing.T, log *member.Buffer, args ...string) (stop func()) {
	t.Helper()
	root := &cobra.Command{Use: "agent"}
	root.AddCommand(Command())
	root.SetOut(log)
	root.SetErr(log)
	root.SetArgs(append([]string{"backup", "run"}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error {
		if code := cli.Main(ctx, root, slog.New(slog.DiscardHandler)); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	return func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Errorf("%v\n%s", err, log)
		}
	}
}

// Three commands save a cluster of three members, also after the leader is gone, and nothing but etcd and a bucket is there.
func TestRunSavesAClusterWithoutKubernetes(t *testing.T) {
	server := bucket.Start(t)
	server.Make(t, "run", false)
	members := member.StartCluster(t, "3.6", 3)
	at := []string{
		"--store", "s3://run/a?pathStyle=true&region=" + bucket.Region + "&endpoint=" + server.Endpoint, "--prefix", demo,
		"--credentials", credentials(t, bucket.AccessKey, bucket.SecretKey),
	}
	log := &member.Buffer{}
	var stops []func()
	for _, m := range members {
		stops = append(stops, runAlongside(t, log, append([]string{"--endpoint", m.Endpoint, "--delta-period", "1s"}, at...)...))
	}
	want := map[string]string{}
	put := func(m *member.Member, n int) (revision int64) {
		for i := range n {
			key, value := fmt.Sprintf("key-%d", i%7), fmt.Sprintf("%s-%d", m.Endpoint, i)
			response, err := m.Client.Put(t.Context(), key, value)
			if err != nil {
				t.Fatal(err)
			}
			want[key], revision = value, response.Header.Revision
		}
		return revision
	}
	saved := func(revision int64) {
		deadline := time.After(2 * time.Minute)
		for poll := time.Tick(200 * time.Millisecond); ; {
			_, code, failure := run(t, append([]string{"plan", "--revision", fmt.Sprint(revision)}, at...)...)
			if code == 0 {
				return
			}
			select {
			case <-poll:
			case <-deadline:
				t.Fatalf("revision %d is not saved: %s\n%s", revision, failure, log)
			}
		}
	}
	saved(put(members[0], 30))

	status, err := members[0].Client.Status(t.Context(), members[0].Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var others []*member.Member
	for _, m := range members {
		own, err := m.Client.Status(t.Context(), m.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if own.Header.MemberId != status.Leader {
			others = append(others, m)
		}
	}
	for _, m := range members {
		if m != others[0] && m != others[1] {
			m.Stop(t)
		}
	}
	deadline := time.After(2 * time.Minute)
	for poll := time.Tick(100 * time.Millisecond); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := others[0].Client.Get(ctx, "key-0")
		cancel()
		if err == nil {
			break
		}
		select {
		case <-poll:
		case <-deadline:
			t.Fatalf("there is no leader: %v", err)
		}
	}
	saved(put(others[0], 20))
	last := put(others[0], 5)
	for _, stop := range stops {
		stop() // the last changes are saved then
	}
	saved(last)

	data, peer := filepath.Join(t.TempDir(), "data"), "http://"+machine.Address(t)
	ok(t, append([]string{"restore", "--data-dir", data, "--etcd-version", "3.6", "--member", member.Name, "--initial-advertise-peer-urls", peer}, at...)...)
	restored, err := member.Start(t, "3.6", member.Options{Dir: data, PeerURL: peer}).Client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(restored.Kvs) != len(want) || restored.Header.Revision != last {
		t.Errorf("%d keys at revision %d are restored, want %d at %d", len(restored.Kvs), restored.Header.Revision, len(want), last)
	}
	for _, kv := range restored.Kvs {
		if want[string(kv.Key)] != string(kv.Value) {
			t.Errorf("%s is %q, want %q", kv.Key, kv.Value, want[string(kv.Key)])
		}
	}
}

func TestRunSavesNoOtherCluster(t *testing.T) {
	m := member.Start(t, "3.6", member.Options{})
	f := &keeping{member: dialing{endpoint: m.Endpoint}, clients: transport.NewClients(transport.Transport{})}
	t.Cleanup(f.clients.Close)
	self, leads, err := f.look(t.Context())
	if err != nil || !leads || self.ClusterID == 0 || self.Lineage == "" {
		t.Fatalf("got %+v, %v, %v", self, leads, err)
	}
	f.clusterID++
	if _, _, err := f.look(t.Context()); !errors.Is(err, errOtherCluster) {
		t.Errorf("got %v", err)
	}
}

func TestRunRefusesFlagsThatMakeNoSense(t *testing.T) {
	url, _ := directory(t)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no prefix":         {nil, "backup.prefix is empty"},
		"a schedule":        {[]string{"--prefix", demo, "--full-schedule", "daily"}, "--full-schedule"},
		"a period":          {[]string{"--prefix", demo, "--delta-period", "1ms"}, "backup.delta.period"},
		"a lineage":         {[]string{"--prefix", demo, "--lineage", "a"}, "--lineage"},
		"no etcd is named":  {[]string{"--prefix", demo, "--endpoint", ""}, "--endpoint"},
		"too large a delta": {[]string{"--prefix", demo, "--delta-max-bytes", "1"}, "backup.delta.maxBytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, code, failure := run(t, append([]string{"run", "--store", url, "--endpoint", "http://127.0.0.1:1"}, c.args...)...)
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			contains(t, failure, c.says)
		})
	}
}
