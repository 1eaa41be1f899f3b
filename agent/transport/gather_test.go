package transport

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/test/member"
)

// A watch over gathered reads loses nothing, whatever the size of the messages, and hears of what follows an idle time.
func TestAListenerHearsEverything(t *testing.T) {
	m := member.Start(t, member.Minors[1], member.Options{Token: "listener"})
	client, err := Transport{}.Listener(t.Context(), m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watch := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	last := int64(1)
	for _, size := range []int{1, 3000, 1 << 20, 200_000, 1} {
		const puts = 40
		for i := range puts {
			if _, err := m.Client.Put(ctx, fmt.Sprint("k", i), string(make([]byte, size))); err != nil {
				t.Fatal(err)
			}
		}
		for n := 0; n < puts; {
			response, ok := <-watch
			if err := response.Err(); !ok || err != nil {
				t.Fatalf("watch of %d bytes: %v", size, err)
			}
			for _, e := range response.Events {
				if e.Kv.ModRevision != last+1 || len(e.Kv.Value) != size {
					t.Fatalf("revision %d of %d bytes, want %d of %d", e.Kv.ModRevision, len(e.Kv.Value), last+1, size)
				}
				last = e.Kv.ModRevision
				n++
			}
		}
	}
}
