package encrypt

import (
	"context"
	"io"
	"iter"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/machine"
)

// nowhere accepts everything immediately.
type nowhere struct{}

func (nowhere) Put(_ context.Context, key string, r io.Reader, _ store.PutOptions) (store.Object, error) {
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 256<<10))
	return store.Object{Key: key, Size: n}, err
}

func (nowhere) Get(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return nil, store.ErrAbsent
}
func (nowhere) List(context.Context, string) iter.Seq2[store.Object, error] { return nil }
func (nowhere) Delete(context.Context, string) error                        { return nil }
func (nowhere) Sweep(context.Context, string, time.Duration) (int, error)   { return 0, nil }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

const benchSize = 256 << 20

// cpu reports the CPU seconds per GB. Wall time depends on the machine and its other load.
func cpu(b *testing.B) (end func()) {
	b.Helper()
	before := machine.CPU()
	return func() { b.ReportMetric((machine.CPU()-before).Seconds()/(float64(b.N)*benchSize/1e9), "cpu-s/GB") }
}

func BenchmarkPut(b *testing.B) {
	s := Around(nowhere{}, &store.ClientEncryption{KeysDir: newPlace(b).keys})
	b.SetBytes(benchSize)
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		if _, err := s.Put(b.Context(), object, io.LimitReader(zeros{}, benchSize), store.PutOptions{IfAbsent: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	p := newPlace(b)
	to, err := keyring{p.keys}.recipient()
	if err != nil {
		b.Fatal(err)
	}
	encrypted, err := age.EncryptReader(io.LimitReader(zeros{}, benchSize), to)
	if err != nil {
		b.Fatal(err)
	}
	var raw strings.Builder
	if _, err := io.Copy(&raw, encrypted); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchSize)
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		content, err := age.Decrypt(strings.NewReader(raw.String()), opener{&keyring{p.keys}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, content, make([]byte, 256<<10)); err != nil {
			b.Fatal(err)
		}
	}
}
