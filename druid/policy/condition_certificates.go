package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// certificatesFacts is the complete input of certificatesReadyRows.
type certificatesFacts struct {
	issuing  certificateVerdict `fact:"what druid issues"` // the worst of the planes; Keep if druid issues none
	rejected rules.YesNo        // a member does not use what its Secrets contain
	reported rules.YesNo        `fact:"a member has certificates"` // of each plane
}

// certificatesReadyRows decide condition CertificatesReady.
var certificatesReadyRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending},
	[]rules.Row[certificatesFacts, conditionVerdict]{
		{Name: "conflict", When: certificatesFacts{issuing: certificatesConflict}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonObjectNotOwned}},
		{Name: "not-installed", When: certificatesFacts{issuing: certificatesUninstalled},
			Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonCertManagerNotInstalled}},
		{Name: "stuck", When: certificatesFacts{issuing: certificatesStuck}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAuthorityLost}},
		{Name: "unread", When: certificatesFacts{issuing: certificatesUnclear},
			Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending}},
		{Name: "not-issued", When: certificatesFacts{issuing: certificatesBegin | certificatesIssue | certificatesAwaited, reported: rules.No},
			Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending}},
		{Name: "rejected", When: certificatesFacts{rejected: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonCertificatesRejected}},
		{Name: "not-renewed", When: certificatesFacts{issuing: certificatesAwaited, reported: rules.Yes},
			Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending}},
		{Name: "not-reported", When: certificatesFacts{reported: rules.No}, Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonCertificatesPending}},
		{Name: "valid", When: certificatesFacts{reported: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid}},
	})

// certificatesReady is condition CertificatesReady. A cluster without TLS does not have it.
func certificatesReady(p messageContext) (metav1.Condition, bool) {
	if len(p.Planes) == 0 {
		return metav1.Condition{}, false
	}
	f := certificatesFacts{rejected: rules.YesNoOf(len(p.rejections()) > 0), reported: rules.Yes}
	var worst issuing
	f.issuing, worst = p.worstIssued()
	for _, plane := range p.Planes {
		if firstExpiry(p.Evaluation, plane).IsZero() {
			f.reported = rules.No
		}
	}
	d := certificatesReadyRows.Decide(f)
	return metav1.Condition{Status: d.Verdict.status, Reason: d.Verdict.reason, Message: certificatesSentence(d.Rule, p, worst)}, true
}

// issuing is a Secret that druid cannot issue, or is about to.
type issuing struct {
	plane, problem string
	// request is the name of the Certificate, empty if druid issues.
	request string
}

// worstIssued returns the verdict that is the most important for users, and what it is about.
func (p messageContext) worstIssued() (verdict certificateVerdict, about issuing) {
	verdict = certificatesKeep
	rank := []certificateVerdict{
		certificatesKeep, certificatesIssue, certificatesBegin, certificatesAwaited, certificatesUnclear, certificatesConflict,
		certificatesUninstalled, certificatesStuck,
	}
	note := func(v certificateVerdict, of issuing) {
		if slices.Index(rank, v) > slices.Index(rank, verdict) {
			verdict, about = v, of
		}
	}
	for _, c := range p.Certificates {
		for _, s := range c.Issued {
			v := c.decide(s).Verdict
			if v == certificatesStuck && p.rotations[c.Plane].Verdict == rotationBegin {
				v = certificatesBegin // with another authority
			}
			note(v, issuing{plane: c.Plane, problem: cmp.Or(s.Problem, c.Problem)})
		}
	}
	for _, r := range p.Requests {
		note(r.decide().Verdict, issuing{r.Plane, r.Problem, r.Name})
	}
	return verdict, about
}

func certificatesSentence(rule string, p messageContext, worst issuing) string {
	switch rule {
	case "conflict":
		return worst.problem
	case "not-installed":
		return "cert-manager is not installed: the API server does not know the kind Certificate of cert-manager.io/v1. Install cert-manager. " +
			"druid continues within a minute, without a restart"
	case "not-issued", "not-renewed":
		switch {
		case worst.request == "":
			return "the certificates are not in place yet"
		case worst.problem == "":
			return fmt.Sprintf("cert-manager has not processed Certificate %s yet", worst.request)
		default:
			return fmt.Sprintf("cert-manager has not issued Certificate %s: %s", worst.request, worst.problem)
		}
	case "stuck":
		return worst.problem + fmt.Sprintf(". druid cannot issue the %s certificates, and no Secret has those in use. Restore the Secret from a backup. "+
			"If there is none, create another EtcdCluster before the certificates expire, and restore a backup into it", worst.plane)
	case "unread":
		return worst.problem
	case "rejected":
		return strings.Join(p.rejections(), ". ") + ". Running members keep their previous certificates"
	case "valid":
		return strings.Join(append([]string{"all members have certificates"}, p.replacements()...), ". ")
	default:
		return "the certificates are not in place yet"
	}
}

// replacements says which certificate authorities are being replaced, and what is wrong with the annotation that requests it.
func (p messageContext) replacements() (all []string) {
	for _, plane := range p.Planes {
		var s *v1alpha1.TLSPlaneStatus
		if p.status.TLS != nil {
			s = p.status.TLS.Client
			if plane == planePeer {
				s = p.status.TLS.Peer
			}
		}
		if s != nil && s.Message != "" {
			all = append(all, fmt.Sprintf("druid replaces the %s authority (%s): %s", plane, s.Phase, strings.TrimSuffix(s.Message, ".")))
		}
	}
	if p.BadRotation != "" {
		all = append(all, p.BadRotation)
	}
	return all
}

// rejections says which members do not use what their Secrets contain, and why.
func (p messageContext) rejections() []string {
	var all []string
	for _, plane := range p.Planes {
		members := map[string][]string{}
		var order []string
		for _, m := range p.listed {
			problem := reportOf(m, plane).Problem
			if problem == "" || !m.Readable {
				continue
			}
			if members[problem] == nil {
				order = append(order, problem)
			}
			members[problem] = append(members[problem], m.Name)
		}
		for _, problem := range order {
			all = append(all, fmt.Sprintf("the %s certificates of %s are rejected: %s", plane, strings.Join(members[problem], ", "), problem))
		}
	}
	return all
}
