package plugin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policies are the ValidatingAdmissionPolicies of the installation, each with a binding of the same name.
var policies = []string{"druid-agent-leases", "druid-authorities", "druid-certificates", "druid-clusters", "druid-objects", "druid-pods",
	"druid-secrets", "druid-snapshots", "druid-specs"}

// aboutDruid are those of them that name the user of druid in a match condition. With another name, they do not limit druid, or limit it too much.
var aboutDruid = []string{"druid-authorities", "druid-certificates", "druid-objects", "druid-pods", "druid-secrets", "druid-specs"}

func (i *installation) checkPolicies(ctx context.Context) finding {
	var missing, weak, others []string
	users := i.users()
	for _, name := range policies {
		policy, err := i.typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		var binding *admissionv1.ValidatingAdmissionPolicyBinding
		if err == nil {
			binding, err = i.typed.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			return unread("ValidatingAdmissionPolicies", err)
		case !enforced(*policy, *binding):
			weak = append(weak, name)
		case slices.Contains(aboutDruid, name) && slices.ContainsFunc(users, func(user string) bool { return !names(*policy, user) }):
			others = append(others, name)
		}
	}
	if len(missing) > 0 {
		return warn("Apply the ValidatingAdmissionPolicies of druid: they limit what druid, the agents and users can do. "+installPage,
			"missing, or without a binding: %s", strings.Join(missing, ", "))
	}
	if len(weak) > 0 {
		return warn("Apply the ValidatingAdmissionPolicies of druid again. "+installPage,
			"changed, so that they do not refuse all that they should: %s", strings.Join(weak, ", "))
	}
	if len(others) > 0 {
		return warn("Put the name of this user into the match conditions, in the manifests with which you installed druid. "+installUserPage,
			"not about each user of druid, %s: %s", strings.Join(users, " and "), strings.Join(others, ", "))
	}
	return fine("all ValidatingAdmissionPolicies have a binding")
}

// installUserPage explains the name of the user.
const installUserPage = installPage + "#the-user-of-druid"

// users are the names by which the API server knows the Pods of druid's Deployments, sorted.
func (i *installation) users() (all []string) {
	for _, d := range i.deployments {
		account := cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
		all = append(all, "system:serviceaccount:"+d.Namespace+":"+account)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// names says whether a match condition of the policy names the user.
func names(policy admissionv1.ValidatingAdmissionPolicy, user string) bool {
	return slices.ContainsFunc(policy.Spec.MatchConditions, func(c admissionv1.MatchCondition) bool {
		return strings.Contains(c.Expression, "'"+user+"'")
	})
}

// enforced says whether a policy refuses what its expressions refuse, in all namespaces, and also if one of them fails.
func enforced(policy admissionv1.ValidatingAdmissionPolicy, binding admissionv1.ValidatingAdmissionPolicyBinding) bool {
	ignores := policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy == admissionv1.Ignore
	return !ignores && len(policy.Spec.Validations) > 0 && policy.Spec.ParamKind == nil && binding.Spec.PolicyName == policy.Name &&
		slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) && binding.Spec.ParamRef == nil && anywhere(binding.Spec.MatchResources)
}

// anywhere says whether a binding leaves it to its policy which requests it is about.
func anywhere(m *admissionv1.MatchResources) bool {
	all := func(s *metav1.LabelSelector) bool { return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 }
	return m == nil || all(m.NamespaceSelector) && all(m.ObjectSelector) && len(m.ResourceRules)+len(m.ExcludeResourceRules) == 0
}
