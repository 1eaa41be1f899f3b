package open

import (
	"errors"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/s3"
)

func TestOpenTakesTheKindThatIsConfigured(t *testing.T) {
	s, err := Open(t.Context(), store.Config{Directory: &store.Directory{Path: t.TempDir()}})
	if _, ok := s.(*dir.Store); !ok || err != nil {
		t.Errorf("a directory opened %T, %v", s, err)
	}
	// Nobody listens there, and nobody is asked.
	s, err = Open(t.Context(), store.Config{S3: &store.S3{Bucket: "b", Region: "r", Endpoint: "http://127.0.0.1:1"}})
	if _, ok := s.(*s3.Store); !ok || err != nil {
		t.Errorf("a bucket opened %T, %v", s, err)
	}
	if s, err := Open(t.Context(), store.Config{}); s != nil || !errors.Is(err, store.ErrInvalid) {
		t.Errorf("nothing opened %T, %v; want ErrInvalid", s, err)
	}
	if s, err := Open(t.Context(), store.Config{Directory: &store.Directory{Path: t.TempDir() + "/no"}}); s != nil || !errors.Is(err, store.ErrNoBucket) {
		t.Errorf("a directory that is not there opened %T, %v; want nil and ErrNoBucket", s, err)
	}
}
