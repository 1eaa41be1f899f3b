package policy

import (
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// TLSGoal is where a plane is to arrive.
type TLSGoal uint8

// The goals.
const (
	GoalOff  TLSGoal = 1 << iota // plain text
	GoalBoth                     // TLS, and plain text for clients
	GoalOn                       // TLS only
)

func (g TLSGoal) String() string { return rules.Word(g, "off", "both", "on") }

// TLSFacts is the complete input of tlsStageRows, for the connections of clients or of peers.
type TLSFacts struct {
	Goal TLSGoal
	// Plain says that the Pod of a member has no TLS. Only says that a member accepts TLS only.
	Plain rules.YesNo  `fact:"a member has plain text only"`
	Only  rules.Answer `fact:"a member has TLS only"`
}

// tlsStageRows decide what the next Pods get. A member with plain text only and a member with TLS only cannot reach each other, and
// no endpoint would work for both. So members that have both are always between them.
var tlsStageRows = rules.New(v1alpha1.TLSStageBoth, []rules.Row[TLSFacts, v1alpha1.TLSStage]{
	{Name: "mixed", When: TLSFacts{Plain: rules.Yes, Only: rules.Yes | rules.Unknown}, Verdict: v1alpha1.TLSStageAdding,
		Why: "no edit leads here; members with both reach all others"},
	{Name: "add", When: TLSFacts{Goal: GoalBoth | GoalOn, Plain: rules.Yes}, Verdict: v1alpha1.TLSStageAdding,
		Why: "plain text works everywhere until every member has certificates"},
	{Name: "keep-both", When: TLSFacts{Goal: GoalBoth, Plain: rules.No}, Verdict: v1alpha1.TLSStageBoth,
		Why: "spec.tls.client.plaintext is Allow"},
	{Name: "require", When: TLSFacts{Goal: GoalOn, Plain: rules.No}, Verdict: v1alpha1.TLSStageOn,
		Why: "every member has certificates"},
	{Name: "remove-first", When: TLSFacts{Goal: GoalOff, Only: rules.Yes | rules.Unknown}, Verdict: v1alpha1.TLSStageBoth,
		Why: "TLS works everywhere until every member accepts plain text"},
	{Name: "remove", When: TLSFacts{Goal: GoalOff, Only: rules.No}, Verdict: v1alpha1.TLSStageOff,
		Why: "every member accepts plain text"},
})

// TLSStage decides how the next Pods use TLS.
func TLSStage(f TLSFacts) v1alpha1.TLSStage { return tlsStageRows.Decide(f).Verdict }
