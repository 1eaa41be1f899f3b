package policy

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// The facts about the Secrets of a plane whose certificates druid issues.
type (
	// AuthorityState is the state of the Secret with the certificate authority.
	AuthorityState uint8
	// AuthorityKnown compares that authority with what was issued before.
	AuthorityKnown uint8
	// IssuedState is the state of a Secret with certificates that it signed.
	IssuedState uint8
)

// The states of the authority.
const (
	AuthorityUnread   AuthorityState = 1 << iota // it could not be read
	AuthorityAbsent                              // no such Secret
	AuthorityForeign                             // a Secret of that name that is not the cluster's
	AuthorityUnusable                            // expired, or not a certificate authority with its key
	AuthorityPresent
)

func (a AuthorityState) String() string {
	return rules.Word(a, "unread", "absent", "foreign", "unusable", "present")
}

// What is known of the authority that members use.
const (
	AuthorityNew      AuthorityKnown = 1 << iota // the cluster has not formed, and nothing was issued
	AuthoritySame                                // a Secret or a Lease names this authority
	AuthorityOther                               // they name another one
	AuthorityUnproven                            // the cluster has formed, and they name none
)

func (a AuthorityKnown) String() string {
	return rules.Word(a, "new", "same", "other", "unproven")
}

// The states of what was issued.
const (
	IssuedUnread   IssuedState = 1 << iota // it could not be read
	IssuedAbsent                           // no such Secret
	IssuedForeign                          // a Secret of that name that is not the cluster's
	IssuedOutdated                         // for other names or endpoints, of another authority, or damaged
	IssuedDue                              // a third of the lifetime is left, or less
	IssuedCurrent
)

func (i IssuedState) String() string {
	return rules.Word(i, "unread", "absent", "foreign", "outdated", "due", "current")
}

// Certificates are the Secrets of a plane whose certificates druid issues.
type Certificates struct {
	// Plane is client or peer.
	Plane     string
	Authority AuthorityState
	Known     AuthorityKnown
	// Problem says what is wrong with the authority, if something is.
	Problem string
	// Issued are the Secrets that it signed. The first one is that of the members, the others are those of clients.
	Issued []Issued
	// Fingerprint and NotAfter are those of a usable authority.
	Fingerprint string
	NotAfter    time.Time
}

// Issued is a Secret with certificates.
type Issued struct {
	Name  string
	State IssuedState
	// Problem says what is wrong with the Secret, if something is.
	Problem string
}

// certificateFacts is the complete input of certificateRows.
type certificateFacts struct {
	authority AuthorityState
	known     AuthorityKnown `fact:"compared with the one in use"`
	issued    IssuedState    `fact:"certificates"`
}

// certificateVerdict is what happens with the Secrets of a plane.
type certificateVerdict uint8

const (
	certificatesKeep certificateVerdict = 1 << iota
	// certificatesUnclear: druid looks again.
	certificatesUnclear
	// certificatesConflict: an object of another owner has a name that is needed.
	certificatesConflict
	// certificatesStuck: druid cannot issue certificates that the members would trust.
	certificatesStuck
	// certificatesBegin makes the authority and issues the first certificates.
	certificatesBegin
	certificatesIssue
)

func (v certificateVerdict) String() string {
	return rules.Word(v, "Keep", "Wait", "Conflict", "Stuck", "Create", "Issue")
}

// certificateRows decide what druid issues. The members trust the authority that etcd was started with, so another
// authority is never made once certificates can have been issued, and never signs.
var certificateRows = rules.New(certificatesUnclear, []rules.Row[certificateFacts, certificateVerdict]{
	{Name: "secrets-unread", When: certificateFacts{authority: AuthorityUnread}, Verdict: certificatesUnclear},
	{Name: "authority-conflict", When: certificateFacts{authority: AuthorityForeign}, Verdict: certificatesConflict},
	{Name: "certificates-unread", When: certificateFacts{issued: IssuedUnread}, Verdict: certificatesUnclear},
	{Name: "certificates-conflict", When: certificateFacts{issued: IssuedForeign}, Verdict: certificatesConflict},
	{Name: ruleAuthorityMissing, When: certificateFacts{authority: AuthorityAbsent, known: AuthorityNew}, Verdict: certificatesBegin},
	{Name: "authority-lost", When: certificateFacts{authority: AuthorityAbsent}, Verdict: certificatesStuck},
	{Name: "authority-unusable", When: certificateFacts{authority: AuthorityUnusable}, Verdict: certificatesStuck},
	{Name: "authority-changed", When: certificateFacts{authority: AuthorityPresent, known: AuthorityOther}, Verdict: certificatesStuck},
	{Name: "certificates-missing", When: certificateFacts{authority: AuthorityPresent, issued: IssuedAbsent}, Verdict: certificatesIssue},
	{Name: "certificates-outdated", When: certificateFacts{authority: AuthorityPresent, issued: IssuedOutdated}, Verdict: certificatesIssue},
	{Name: "certificates-due", When: certificateFacts{authority: AuthorityPresent, issued: IssuedDue}, Verdict: certificatesIssue},
	{Name: "certificates-current", When: certificateFacts{authority: AuthorityPresent, issued: IssuedCurrent}, Verdict: certificatesKeep},
})

func (c Certificates) decide(s Issued) rules.Decision[certificateVerdict] {
	return certificateRows.Decide(certificateFacts{c.Authority, c.Known, s.State})
}

// certificateSteps issue what is missing, before druid creates the Pods that mount it.
func certificateSteps(e Evaluation, add func(Step)) {
	if e.Deleted {
		return
	}
	for _, c := range e.Certificates {
		for i, s := range c.Issued {
			d := c.decide(s)
			// The Secret of the members comes first, and the authority with it.
			if d.Verdict == certificatesIssue || d.Verdict == certificatesBegin && i == 0 {
				add(Step{Kind: IssueCertificates, Rule: d.Rule, Stage: StageShared, Object: s.Name})
			}
		}
	}
}

// ruleAuthorityMissing is the only rule by which druid makes a certificate authority.
const ruleAuthorityMissing = "authority-missing"

// MakesAuthority says whether the step makes a certificate authority.
func (s Step) MakesAuthority() bool {
	return s.Kind == IssueCertificates && s.Rule == ruleAuthorityMissing
}

// tlsStatus returns status.tls after before. Dates that are unknown now stay as they were.
func tlsStatus(e Evaluation, before *v1alpha1.TLSStatus) *v1alpha1.TLSStatus {
	if len(e.Planes) == 0 {
		return nil
	}
	if before == nil {
		before = &v1alpha1.TLSStatus{}
	}
	after := before.DeepCopy()
	for _, plane := range e.Planes {
		into := &after.Client
		if plane == planePeer {
			into = &after.Peer
		}
		if *into == nil {
			*into = &v1alpha1.TLSPlaneStatus{}
		}
		if first := firstExpiry(e, plane); !first.IsZero() {
			(*into).NotAfter = &metav1.Time{Time: first}
		}
		for _, c := range e.Certificates {
			if c.Plane == plane && c.Fingerprint != "" && c.Known != AuthorityOther {
				(*into).Authority, (*into).AuthorityNotAfter = c.Fingerprint, &metav1.Time{Time: c.NotAfter}
			}
		}
		if len((*into).Issuers) == 0 {
			(*into).Issuers = issuersOf(e, plane)
		}
	}
	return after
}

// planePeer is the plane that is not that of clients.
const planePeer = "peer"

func reportOf(m Member, plane string) leases.TLSPlane {
	if plane == planePeer {
		return m.Reports.TLS.Peer
	}
	return m.Reports.TLS.Client
}

// issuersOf returns the authorities whose certificates the members of the formed cluster use, none while that is not known.
func issuersOf(e Evaluation, plane string) (all []string) {
	if e.RecordState != RecordFormed {
		return nil
	}
	for _, m := range e.listed {
		if issuer := reportOf(m, plane).Issuer; m.reportsVoter() && m.Liveness == leases.Live && issuer != "" && !slices.Contains(all, issuer) {
			all = append(all, issuer)
		}
	}
	slices.Sort(all)
	return all
}

// firstExpiry is when the first certificate of a member ends, zero while none is known.
func firstExpiry(e Evaluation, plane string) (first time.Time) {
	for _, m := range e.listed {
		if at := reportOf(m, plane).NotAfter; m.Readable && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
