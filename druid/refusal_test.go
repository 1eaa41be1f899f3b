package druid

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
)

func TestWhatAPersonMustMendIsTold(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(pods, "demo-a", errors.New("the namespace goes"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: namespaceTerminating}}
	// As k8s.io/apiserver/pkg/admission/plugin/webhook/errors makes it of a webhook's answer without a code.
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: `admission webhook "policy" denied the request`}}
	tests := map[string]struct {
		err  error
		told string
	}{
		"a quota":                        {apierrors.NewForbidden(pods, "demo-a", errors.New("exceeded quota")), v1alpha1.ReasonRefusedByAPI},
		"a namespace that goes":          {terminating, ""},
		"an object that cannot be":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "demo-a", nil), v1alpha1.ReasonRefusedByAPI},
		"a webhook that refuses":         {denied, v1alpha1.ReasonRefusedByAPI},
		"a webhook that does not answer": {apierrors.NewInternalError(errors.New(`failed calling webhook "policy": connection refused`)), v1alpha1.ReasonRefusedByAPI},
		"an etcd that does not answer":   {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), ""},
		"a conflict":                     {apierrors.NewConflict(pods, "demo-a", nil), ""},
		"a name that is taken":           {&foreignError{kind: "Pod", name: "demo-a"}, v1alpha1.ReasonForeignObject},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			problems, _ := sort(plan.Step{Member: "demo-a"}, fmt.Errorf("CreatePod: %w", test.err))
			told := ""
			for _, p := range problems {
				told += p.Reason
			}
			if told != test.told {
				t.Errorf("told %q, want %q", told, test.told)
			}
		})
	}
}
