package policy

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// maxTrusted bounds the authorities that are trusted at once, because a Lease has no room for more. druid needs a third one only if
// one is lost while an old one is still trusted.
const maxTrusted = 4

// rotate writes what becomes of the authorities of a plane.
func rotate(c Certificates, r rotation, into *v1alpha1.TLSPlaneStatus, now metav1.Time) {
	first := into.Authority == "" // or the status was lost
	into.Trusted, into.Authority = slices.Clone(c.Trusted), c.Signing
	begins := c.Next.Authority != nil && r.Verdict&(rotationNext|rotationBegin) != 0
	if c.Request != "" && (first || begins) {
		into.LastHandledRotateCA = c.Request
	}
	switch {
	case begins && r.Verdict == rotationNext:
		into.Trusted = append(into.Trusted, *c.Next.Authority)
	case begins:
		into.Trusted, into.Authority = []v1alpha1.TLSAuthority{*c.Next.Authority}, c.Next.Authority.Fingerprint
	case r.Verdict == rotationSwitch:
		into.Authority = c.Trusted[len(c.Trusted)-1].Fingerprint
	case r.Verdict == rotationWithdraw:
		into.Trusted = into.Trusted[:signs(*into)+1]
	case r.Verdict == rotationDrop:
		into.Trusted = into.Trusted[signs(*into):]
	}
	if i := signs(*into); i >= 0 {
		into.AuthorityNotAfter = &into.Trusted[i].NotAfter
	}
	into.Phase = phaseOf(r, *into, into.Phase)
	since := into.DistributedAt
	into.DistributedAt, into.HeldFor = distributedAt(r, since, now), nil
	if c.HeldFor > 0 && since != nil && into.DistributedAt == since {
		into.HeldFor = &metav1.Duration{Duration: c.HeldFor}
	}
	into.Message = AsSentences(rotationMessage(c, r, *into))
}

// signs is the index of the authority that signs, or -1.
func signs(s v1alpha1.TLSPlaneStatus) int {
	return slices.IndexFunc(s.Trusted, func(a v1alpha1.TLSAuthority) bool { return a.Fingerprint == s.Authority })
}

// distributedAt is since when all Secrets have what the present phase gives them, nil while one does not. What is unknown now
// changes nothing.
func distributedAt(r rotation, before *metav1.Time, now metav1.Time) *metav1.Time {
	switch {
	case r.facts.trusted&(trustCandidate|trustOld) == 0, r.Verdict&(rotationNext|rotationWithdraw|rotationSwitch|rotationDrop) != 0:
		return nil
	case r.facts.secrets == deliveryUnread:
		return before
	case r.facts.secrets != deliveryAll:
		return nil
	case before == nil:
		return &now
	default:
		return before
	}
}

// phaseOf is the phase after the decision. While it is not known what members run, it stays.
func phaseOf(r rotation, after v1alpha1.TLSPlaneStatus, before v1alpha1.TLSPhase) v1alpha1.TLSPhase {
	i := signs(after)
	switch {
	case r.Rule == ruleHold:
		return v1alpha1.TLSWaitingForClients
	case r.Rule == ruleHoldOld:
		return v1alpha1.TLSWaitingForOldCertificates
	case i >= 0 && i < len(after.Trusted)-1:
		return v1alpha1.TLSTrustingBoth
	case i > 0:
		return v1alpha1.TLSIssuingCertificates
	case r.Verdict == rotationDrop, r.Rule == ruleTrustNew, before == v1alpha1.TLSTrustingNew && r.facts.runs != runningAll:
		return v1alpha1.TLSTrustingNew
	default:
		return v1alpha1.TLSStable
	}
}

// rotationMessage says what the replacement of an authority waits for, or nothing.
func rotationMessage(c Certificates, r rotation, after v1alpha1.TLSPlaneStatus) string {
	if after.Phase == v1alpha1.TLSStable {
		if r.Verdict != rotationNext {
			return ""
		}
		return replacementReason(c, r) + ", and druid makes another one"
	}
	if after.Phase == v1alpha1.TLSTrustingNew {
		return "druid restarts the members one at a time, so that they no longer trust the old authority"
	}
	words := map[rotationVerdict]string{
		rotationNext:     "druid adds the next authority to the Secrets of members and clients",
		rotationWithdraw: "the next authority is lost, and druid makes another one",
		rotationSwitch:   "members and clients get certificates of the new authority",
	}[r.Verdict]
	if words == "" {
		words = waitingWords(r.Rule, after)
	}
	if r.facts.signer == AuthorityLost && r.facts.room == rules.No {
		return fmt.Sprintf("%s, and druid cannot add another authority: %d are trusted. Restore the Secret from a backup. The certificates in use stay valid",
			c.Problem, len(c.Trusted))
	}
	if r.facts.signer == AuthorityLost {
		words = c.Problem + ". The certificates in use stay valid, and druid cannot renew them before it has replaced the authority: " + words
	}
	return words
}

func replacementReason(c Certificates, r rotation) string {
	switch r.Rule {
	case "authority-lost":
		return c.Problem
	case "authority-due":
		return "a third of the lifetime of the authority is left"
	default:
		return fmt.Sprintf("annotation %s: %s requests another authority", v1alpha1.RotateCAAnnotation, c.Request)
	}
}

func waitingWords(rule string, after v1alpha1.TLSPlaneStatus) string {
	since := "now"
	if after.DistributedAt != nil {
		since = after.DistributedAt.UTC().Format(time.RFC3339)
	}
	switch rule {
	case "distribute-trust", "distribute-trust-to-clients":
		return "the Secrets of members and clients get the next authority"
	case "trust-both":
		return "druid restarts the members one at a time, so that they trust both authorities"
	case ruleHold:
		return fmt.Sprintf("druid waits for trustHold, counted from %s, so that clients read ca.crt in their Secrets again", since)
	case "issue-certificates", "issue-certificates-to-clients":
		return "the Secrets of members and clients get certificates of the new authority"
	case "certificates-come":
		return "a member does not use the certificate of the new authority yet"
	case ruleHoldOld:
		return fmt.Sprintf("druid waits for trustHold, counted from %s, so that clients use the new tls.crt in their Secrets", since)
	default:
		return "druid could not read its Secrets. It tries again, and its log shows the cause"
	}
}

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
