package snapshot

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// fullStore is a store that takes nothing.
type fullStore struct{ store.Store }

var errFull = errors.New("no space left")

func (fullStore) Put(context.Context, string, io.Reader, store.PutOptions) (store.Object, error) {
	return store.Object{}, errFull
}

func TestAnUploadThatFailsDoesNotWaitForAStreamThatStandsStill(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string][]byte{"before its first byte": nil, "in its middle": make([]byte, 3*aheadChunk+1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, etcd := io.Pipe()
			go func() { _, _ = etcd.Write(begun) }()
			ended := make(chan error, 1)
			go func() {
				_, err := upload(t.Context(), fullStore{}, "key", Trailer{}, stream, passage{})
				ended <- err
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, errFull) {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it waits")
			}
		})
	}
}
