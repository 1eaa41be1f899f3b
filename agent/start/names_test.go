package start

import (
	"testing"

	"github.com/etcd-druid/druid/internal/rules"
)

func TestWhenOthersCompareNames(t *testing.T) {
	for name, c := range map[string]struct {
		members, compare, unknown int
		want                      rules.Answer
	}{
		"the only member":                              {1, 0, 0, rules.No},
		"two members, and the other one compares":      {2, 1, 0, rules.Yes},
		"two members, and the other one is unknown":    {2, 0, 1, rules.Unknown},
		"three members, and both others compare":       {3, 2, 0, rules.Yes},
		"three members, and a lost one compared":       {3, 1, 0, rules.No},
		"three members, and one Lease is unknown":      {3, 1, 1, rules.Unknown},
		"three members, and none compares":             {3, 0, 0, rules.No},
		"three members, one unknown and none compares": {3, 0, 1, rules.No},
		"five members, and two lost ones compared":     {5, 2, 0, rules.No},
		"five members, and three others compare":       {5, 3, 1, rules.Yes},
		"no record of members":                         {0, 0, 0, rules.No},
	} {
		if got := OthersCompareNames(c.members, c.compare, c.unknown); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
