package preflight

import "testing"

func TestTheRigNeedsFreeSpace(t *testing.T) {
	for _, c := range []struct {
		name       string
		size, free uint64
		wrong      bool
	}{
		{"half is free", 100 << 30, 50 << 30, false},
		{"just enough is free", 100 << 30, 16 << 30, false},
		{"less than what a verification and the rig need is free", 100 << 30, 15 << 30, true},
		{"nothing is free", 100 << 30, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := enough("/var", c.size, c.free); (err != nil) != c.wrong {
				t.Errorf("enough: %v", err)
			}
		})
	}
}
