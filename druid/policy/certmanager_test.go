package policy

import (
	"slices"
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

// TestForeignObjectsGetNoCertificate: no certificate is requested for what belongs to others.
func TestForeignObjectsGetNoCertificate(t *testing.T) {
	checkTable(t, requestRows, "certificate-requests", "Certificates that druid requests from cert-manager: druid/policy.requestRows",
		func(f requestFacts, d rules.Decision[certificateVerdict]) string {
			v := d.Verdict
			switch {
			case v == certificatesIssue && (f.certificate == RequestForeign || f.certificate == RequestAbsent && f.target != TargetFree):
				return "an object of another owner is written"
			case v == certificatesIssue && f.certificate&(RequestAbsent|RequestOutdated) == 0:
				return "a Certificate is written that is as it should be, or that could not be read"
			case v == certificatesKeep && f.certificate != RequestIssued:
				return "what was not issued counts as issued"
			}
			return ""
		})
}

func TestEachCertificateIsRequestedByItself(t *testing.T) {
	o := Observed{Requests: []Request{
		{Name: "a", State: RequestForeign}, {Name: "b", State: RequestAbsent, Target: TargetFree}, {Name: "c", State: RequestAbsent, Target: TargetTaken},
		{Name: "d", State: RequestOutdated}, {Name: "e", State: RequestAwaited}, {Name: "f", State: RequestNotServed},
	}}
	steps := func(d Desired) (got []string) {
		requestSteps(Evaluate(d, o), func(s Step) { got = append(got, s.Object+" "+s.Rule) })
		return got
	}
	if got, want := steps(Desired{}), []string{"b certificate-missing", "d certificate-outdated"}; !slices.Equal(got, want) {
		t.Errorf("the steps are %q, want %q", got, want)
	}
	if got := steps(Desired{Deleted: true}); len(got) > 0 {
		t.Errorf("a deleted cluster gets %q", got)
	}
}
