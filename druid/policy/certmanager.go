package policy

import (
	"cmp"

	"github.com/etcd-druid/druid/internal/rules"
)

// The facts about a Certificate, the object by which druid asks cert-manager for a certificate.
type (
	// RequestState is the state of the Certificate.
	RequestState uint8
	// TargetState is the state of the Secret that cert-manager is to write. druid looks only if the Certificate does not
	// exist.
	TargetState uint8
)

// The states of a Certificate.
const (
	RequestUnread    RequestState = 1 << iota // it could not be read
	RequestNotServed                          // the API server does not know the kind
	RequestAbsent
	RequestForeign  // an object of that name that is not the cluster's
	RequestOutdated // not as druid wrote it
	RequestAwaited  // cert-manager has not issued the certificate, or it is not valid any more
	RequestIssued
)

func (s RequestState) String() string {
	return rules.Word(s, "unread", "not served", "absent", "foreign", "outdated", "awaited", "issued")
}

// The states of the Secret.
const (
	TargetUnread TargetState = 1 << iota // it could not be read
	TargetFree                           // no such Secret, or that of an earlier Certificate of this cluster
	TargetTaken                          // a Secret of someone else, which cert-manager would overwrite
)

func (s TargetState) String() string { return rules.Word(s, "unread", "free", "taken") }

// Request is a Certificate.
type Request struct {
	// Plane is client or peer.
	Plane, Name string
	State       RequestState
	Target      TargetState
	// Problem says what is wrong, if something is. Of a Certificate that is awaited it is what cert-manager reports.
	Problem string
}

// requestFacts is the complete input of requestRows.
type requestFacts struct {
	certificate RequestState
	target      TargetState `fact:"Secret"`
}

// requestRows decide what druid does with a Certificate. cert-manager overwrites the Secret that a Certificate names, so
// druid creates none for a Secret of someone else.
var requestRows = rules.New(certificatesUnclear, []rules.Row[requestFacts, certificateVerdict]{
	{Name: "certificate-unread", When: requestFacts{certificate: RequestUnread}, Verdict: certificatesUnclear},
	{Name: "cert-manager-not-installed", When: requestFacts{certificate: RequestNotServed}, Verdict: certificatesUninstalled},
	{Name: "certificate-conflict", When: requestFacts{certificate: RequestForeign}, Verdict: certificatesConflict},
	{Name: "secret-unread", When: requestFacts{certificate: RequestAbsent, target: TargetUnread}, Verdict: certificatesUnclear},
	{Name: "secret-conflict", When: requestFacts{certificate: RequestAbsent, target: TargetTaken}, Verdict: certificatesConflict},
	{Name: "certificate-missing", When: requestFacts{certificate: RequestAbsent, target: TargetFree}, Verdict: certificatesIssue},
	{Name: "certificate-outdated", When: requestFacts{certificate: RequestOutdated}, Verdict: certificatesIssue},
	{Name: "certificate-awaited", When: requestFacts{certificate: RequestAwaited}, Verdict: certificatesAwaited},
	{Name: "certificate-issued", When: requestFacts{certificate: RequestIssued}, Verdict: certificatesKeep},
})

func (r Request) decide() rules.Decision[certificateVerdict] {
	return requestRows.Decide(requestFacts{r.State, cmp.Or(r.Target, TargetUnread)})
}

// requestSteps write the Certificates that are missing or differ.
func requestSteps(e Evaluation, add func(Step)) {
	if e.Deleted {
		return
	}
	for _, r := range e.Requests {
		if d := r.decide(); d.Verdict == certificatesIssue {
			add(Step{Kind: RequestCertificate, Rule: d.Rule, Stage: StageShared, Object: r.Name})
		}
	}
}
