package policy

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// The facts about the Secrets of a plane whose certificates druid issues.
type (
	// AuthorityState is the state of the Secret with a certificate authority.
	AuthorityState uint8
	// AuthorityKnowledge is what is known of the authorities in use.
	AuthorityKnowledge uint8
	// IssuedState is the state of a Secret with certificates.
	IssuedState uint8
	// TrustState compares the authorities in such a Secret with those that are trusted.
	TrustState uint8
)

// The states of an authority.
const (
	AuthorityUnread AuthorityState = 1 << iota // its Secret could not be read
	AuthorityLost                              // there is no Secret from which this authority can sign
	AuthorityPresent
)

func (a AuthorityState) String() string {
	return rules.Word(a, "unread", "lost", "present")
}

// What is known of the authorities that members use.
const (
	AuthorityNew     AuthorityKnowledge = 1 << iota // the cluster has not formed, and nothing was issued
	AuthorityKnown                                  // the status, a Secret or a Lease names them
	AuthorityUnknown                                // certificates can have been issued, and there is no authority that members name
)

func (a AuthorityKnowledge) String() string {
	return rules.Word(a, "new", "known", "unknown")
}

// The states of what was issued.
const (
	IssuedUnread   IssuedState = 1 << iota // it could not be read
	IssuedAbsent                           // no such Secret, or no certificates in it
	IssuedForeign                          // a Secret of that name that is not the cluster's
	IssuedOutdated                         // for other names, or of another authority
	IssuedDue                              // a third of the lifetime is left, or less
	IssuedCurrent
)

func (i IssuedState) String() string {
	return rules.Word(i, "unread", "absent", "foreign", "outdated", "due", "current")
}

// The states of the trust.
const (
	TrustSame  TrustState = 1 << iota
	TrustOther            // other authorities, or other endpoints of the cluster
)

func (t TrustState) String() string { return rules.Word(t, "same", "other") }

// Certificates are the Secrets of a plane whose certificates druid issues.
type Certificates struct {
	// Plane is client or peer.
	Plane string
	// Known says whether Trusted and Signing are known.
	Known AuthorityKnowledge
	// Trusted are the authorities that members and clients are to trust, the oldest first. Signing is the fingerprint of the
	// one that signs.
	Trusted []v1alpha1.TLSAuthority
	Signing string
	// Signer is the state of that authority, and Candidate that of the last one of Trusted.
	Signer, Candidate AuthorityState
	// Problem says what is wrong with the authority that signs, if something is.
	Problem string
	// Next is the authority after the last one of Trusted. It is read when one is needed.
	Next NextAuthority
	// Due says that a third of the lifetime of the authority that signs is left, and Urgent that so little is left of it, or of
	// certificates that cannot be renewed, that clients are not waited for.
	Due, Urgent rules.YesNo
	// Request is the value of the annotation of the EtcdCluster if it is about this plane. Requested says that druid has not handled it.
	Request   string
	Requested rules.YesNo
	// Held says that clients had their time since all Secrets have what they are to have. HeldFor is how much of it the status is to
	// have.
	Held    rules.YesNo
	HeldFor time.Duration
	// Issued are the Secrets with certificates. The first one is that of the members, the others are those of clients.
	Issued []Issued
}

// NextAuthority is an authority that is not trusted yet.
type NextAuthority struct {
	// Generation is the first one whose Secret is free, or has an authority that can be used. It is 0 if it was not looked for.
	Generation int32
	// Authority is that in the Secret. nil: it is to be made.
	Authority *v1alpha1.TLSAuthority
}

// Issued is a Secret with certificates.
type Issued struct {
	Name  string
	State IssuedState
	Trust TrustState
	// Problem says what is wrong with the Secret, if something is.
	Problem string
}

// certificateFacts is the complete input of certificateRows.
type certificateFacts struct {
	known  AuthorityKnowledge `fact:"authorities"`
	signer AuthorityState     `fact:"authority that signs"`
	issued IssuedState        `fact:"certificates"`
	trust  TrustState         `fact:"trust in the Secret"`
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
	// certificatesUninstalled: there is no cert-manager.
	certificatesUninstalled
	// certificatesAwaited: cert-manager has not issued a certificate.
	certificatesAwaited
)

func (v certificateVerdict) String() string {
	return rules.Word(v, "Keep", "Wait", "Conflict", "Stuck", "Create", "Issue", "NotInstalled", "Await")
}

// certificateRows decide what druid issues. Only an authority that the status, a Secret or a Lease names signs. While it is
// lost, what was issued stays, and gets the trust in the next one.
var certificateRows = rules.New(certificatesUnclear, []rules.Row[certificateFacts, certificateVerdict]{
	{Name: "authority-unread", When: certificateFacts{signer: AuthorityUnread}, Verdict: certificatesUnclear},
	{Name: "certificates-unread", When: certificateFacts{issued: IssuedUnread}, Verdict: certificatesUnclear},
	{Name: "certificates-conflict", When: certificateFacts{issued: IssuedForeign}, Verdict: certificatesConflict},
	{Name: ruleAuthorityMissing, When: certificateFacts{known: AuthorityNew}, Verdict: certificatesBegin},
	{Name: "authority-unknown", When: certificateFacts{known: AuthorityUnknown}, Verdict: certificatesStuck},
	{Name: "certificates-missing", When: certificateFacts{known: AuthorityKnown, signer: AuthorityPresent, issued: IssuedAbsent}, Verdict: certificatesIssue},
	{Name: "certificates-lost", When: certificateFacts{known: AuthorityKnown, signer: AuthorityLost, issued: IssuedAbsent}, Verdict: certificatesStuck},
	{Name: "certificates-outdated", When: certificateFacts{known: AuthorityKnown, signer: AuthorityPresent, issued: IssuedOutdated}, Verdict: certificatesIssue},
	{Name: "certificates-due", When: certificateFacts{known: AuthorityKnown, signer: AuthorityPresent, issued: IssuedDue}, Verdict: certificatesIssue},
	{Name: "trust-outdated", When: certificateFacts{known: AuthorityKnown, trust: TrustOther}, Verdict: certificatesIssue},
	{Name: "certificates-wait", When: certificateFacts{known: AuthorityKnown, signer: AuthorityLost, issued: IssuedOutdated | IssuedDue},
		Verdict: certificatesKeep},
	{Name: "certificates-current", When: certificateFacts{known: AuthorityKnown, issued: IssuedCurrent}, Verdict: certificatesKeep},
})

func (c Certificates) decide(s Issued) rules.Decision[certificateVerdict] {
	return certificateRows.Decide(certificateFacts{c.Known, c.Signer, s.State, s.Trust})
}

// certificateSteps issue what is missing, before druid creates the Pods that mount it. Once the cluster has formed, each step is
// planned again from live reads: a replica of druid with an old status would issue certificates that members trust no more.
func certificateSteps(e Evaluation, add func(Step)) {
	if e.Deleted {
		return
	}
	formed := e.RecordState == RecordFormed
	for _, c := range e.Certificates {
		for i, s := range c.Issued {
			d := c.decide(s)
			// The Secret of the members comes first, and the authority with it.
			if d.Verdict == certificatesIssue || d.Verdict == certificatesBegin && i == 0 {
				add(Step{Kind: IssueCertificates, Rule: d.Rule, Stage: StageShared, Object: s.Name, Irreversible: formed})
			}
		}
		if r := e.rotations[c.Plane]; r.Verdict&(rotationNext|rotationBegin) != 0 && c.Next.Generation > 0 && c.Next.Authority == nil {
			add(Step{Kind: CreateAuthority, Rule: r.Rule, Stage: StageShared, Object: c.Plane, Irreversible: true})
		}
	}
}

// ruleAuthorityMissing is the rule by which druid makes the first certificate authority.
const ruleAuthorityMissing = "authority-missing"

// MakesAuthority says whether the step makes the first certificate authority.
func (s Step) MakesAuthority() bool {
	return s.Kind == IssueCertificates && s.Rule == ruleAuthorityMissing
}

// tlsStatus returns status.tls after before. Dates that are unknown now stay as they were. It is where the authorities that are
// trusted change: the status is written by compare-and-set, and the Secrets follow it.
func tlsStatus(e Evaluation, before *v1alpha1.TLSStatus, now metav1.Time) *v1alpha1.TLSStatus {
	if len(e.Planes) == 0 {
		return nil
	}
	if before == nil {
		before = &v1alpha1.TLSStatus{}
	}
	after := before.DeepCopy()
	if !slices.Contains(e.Planes, planeClient) {
		after.Client = nil
	}
	if !slices.Contains(e.Planes, planePeer) {
		after.Peer = nil
	}
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
			if c.Plane == plane && c.Known == AuthorityKnown {
				rotate(c, e.rotations[plane], *into, now)
			}
		}
		(*into).Issuers = issuersAfter(e, plane, (*into).Issuers)
	}
	return after
}

// The planes.
const (
	planeClient = "client"
	planePeer   = "peer"
)

func reportOf(m Member, plane string) leases.TLSPlane {
	if plane == planePeer {
		return m.Reports.TLS.Peer
	}
	return m.Reports.TLS.Client
}

// issuersAfter returns the authorities of certificates that a member may start with. Of certificates that druid issues
// they are noted once: status.trusted follows them. Of those of a user they are the authorities that each member
// trusts, and those of the certificates in use. While what one member runs with is not known, those of the certificates
// in use are added, and none is removed: a new Pod waits until its own is there.
func issuersAfter(e Evaluation, plane string, before []string) []string {
	if len(before) == 0 {
		return issuersOf(e, plane)
	}
	issued := slices.ContainsFunc(e.Certificates, func(c Certificates) bool { return c.Plane == plane })
	if issued || e.RecordState != RecordFormed {
		return before
	}
	all := issuersOf(e, plane)
	if !e.certificatesReported(plane) {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(before, all))))
	}
	for fingerprint := range strings.SplitSeq(reportOf(e.listed[0], plane).Trusted, ",") {
		trusted := func(m Member) bool {
			return slices.Contains(strings.Split(reportOf(m, plane).Trusted, ","), fingerprint)
		}
		if !slices.Contains(all, fingerprint) && !slices.ContainsFunc(e.listed, func(m Member) bool { return !trusted(m) }) {
			all = append(all, fingerprint)
		}
	}
	slices.Sort(all)
	return all
}

// certificatesReported says whether it is known of each member what it runs with.
func (e Evaluation) certificatesReported(plane string) bool {
	return len(e.listed) > 0 && !slices.ContainsFunc(e.listed, func(m Member) bool { return !m.reportsTrust(plane) })
}

// reportsTrust says whether it is known what the member runs with. Of one that has just started, it is not.
func (m Member) reportsTrust(plane string) bool {
	return m.Readable && m.Stable && m.Liveness == leases.Live && reportOf(m, plane).Trusted != ""
}

// OutrunsProvided says whether the running etcd of the member was started with other authorities than a user provides now. It
// does once all members have staged the same authorities, and reject nothing: a new Pod would not start with what they reject. Nor would it
// start with a certificate of an authority that is not noted yet: noted are those in the status, which the configuration of agents has.
func OutrunsProvided(o Observed, plane string, m Member, noted []string) bool {
	staged := reportOf(m, plane).Staged
	for _, other := range o.listed() {
		report := reportOf(other, plane)
		if !other.reportsTrust(plane) || report.Problem != "" || report.Staged == "" || report.Staged != staged || !slices.Contains(noted, report.Issuer) {
			return false
		}
	}
	return reportOf(m, plane).Running != staged
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
