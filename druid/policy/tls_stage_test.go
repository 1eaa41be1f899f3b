package policy

import (
	"testing"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// TestMixedTLSMembersReachEachOther: members with and without TLS always reach each other.
func TestMixedTLSMembersReachEachOther(t *testing.T) {
	checkTable(t, tlsStageRows, "tls-stages", "TLS that is turned on or off: druid/policy.tlsStageRows",
		func(f TLSFacts, d rules.Decision[v1alpha1.TLSStage]) string {
			mixed := f.Plain == rules.Yes && f.Only != rules.No
			switch stage := d.Verdict; {
			case stage == v1alpha1.TLSStageOn && f.Plain == rules.Yes:
				return "a member with TLS only meets one without"
			case stage == v1alpha1.TLSStageOff && f.Only != rules.No:
				return "a member without TLS can meet one with TLS only"
			case (stage == v1alpha1.TLSStageOn || stage == v1alpha1.TLSStageBoth) && f.Plain == rules.Yes:
				return "clients are given https, and a member has no TLS"
			case (stage == v1alpha1.TLSStageOff || stage == v1alpha1.TLSStageAdding) && f.Only != rules.No && !mixed:
				return "clients are given http, and a member can have TLS only"
			case f.Plain == rules.No && f.Only == rules.No && f.Goal == GoalOff && stage != v1alpha1.TLSStageOff,
				f.Plain == rules.No && f.Goal == GoalOn && stage != v1alpha1.TLSStageOn:
				return "it does not arrive"
			}
			return ""
		})
}
