package leases_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/etcd-druid/druid/leases"
)

func TestATargetIsOfItsOrderAlone(t *testing.T) {
	want := leases.SnapshotTarget{URI: "s3://b/demo/full/1.zst", Place: &leases.SnapshotPlace{Bucket: "b", Prefix: "a/b", PathStyle: new(false)}}
	of, err := leases.OrderTarget(want, "one")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		uid, target string
		readable    bool
	}{
		"its own":          {"one", of, true},
		"another order's":  {"two", of, false},
		"none":             {"one", "", false},
		"half of it":       {"one", of[:len(of)-1], false},
		"of a later druid": {"one", `one/{"uri":"a","unless":"b"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var lease coordinationv1.Lease
			lease.Annotations = map[string]string{leases.AnnotationSnapshotOrder: test.uid, leases.AnnotationSnapshotOrderTarget: test.target}
			got, err := leases.DecodeSnapshotOrder(&lease).Target()
			switch {
			case !test.readable && !errors.Is(err, leases.ErrUnreadable):
				t.Errorf("got %+v, %v", got, err)
			case test.readable && (err != nil || cmp.Diff(want, got) != ""):
				t.Errorf("%v (-want +got)\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}
