package env

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// A right that is granted and not used, or used and not granted, makes a test package fail.
func TestRightsMustBeEqual(t *testing.T) {
	rights := func(verbs ...string) *Rights {
		r := &Rights{}
		r.Add(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs})
		return r
	}
	for name, c := range map[string]struct {
		used, granted *Rights
		want          int
	}{
		"equal":    {rights("get", "list"), rights("list", "get"), 0},
		"not used": {rights("get"), rights("get", "list"), 1},
		"missing":  {rights("get", "list"), rights("get"), 1},
		"two":      {rights("get"), rights("list"), 1},
	} {
		if got := c.used.Compare(c.granted, "druid", "the Role"); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}
