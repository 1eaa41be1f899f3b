package druid

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// annotates sets an annotation of the EtcdCluster as a user does.
func (s *stage) annotates(key, value string, options ...client.PatchOption) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	return s.Patch(s.Context(), s.newCluster("demo", 3), client.RawPatch(types.MergePatchType, []byte(patch)), options...)
}

// denies waits until the API server denies the annotation with a message that contains says. The policy takes a moment.
func (s *stage) denies(key, value, says string) {
	s.Helper()
	s.eventually("deny "+value, func() error {
		err := s.annotates(key, value, client.DryRunAll)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("got %w, want Invalid: %s", err, says)
		}
		return nil
	})
}

// TestLeaveOrderByAnnotation: members leave in the order of the annotation.
func TestLeaveOrderByAnnotation(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	s.startDruid()
	names := s.whole(3)
	for _, bad := range []string{"demo-other", names[1] + ";" + names[2], names[1] + ","} {
		s.denies(v1alpha1.LeaveFirstAnnotation, bad, "must have names of members, separated by commas: "+strings.Join(names, ", "))
	}
	// Without the annotation, the leader would be the last.
	if err := s.annotates(v1alpha1.LeaveFirstAnnotation, names[0]+", "+names[2]); err != nil {
		t.Fatal(err)
	}
	s.scale("demo", 1)
	for _, want := range []string{names[0], names[2]} {
		if got := s.requested().Member; got != want {
			t.Fatalf("%s leaves, want %s", got, want)
		}
		s.answer(want, done)
		s.struck(want)
		s.swept(want)
	}
	if got := s.members("demo", 1); got[0] != names[1] {
		t.Errorf("%v is left, want %s", got, names[1])
	}
	// The value can stay, also when another edit is made.
	s.scale("demo", 3)
	s.members("demo", 3)
}
