package harness

import (
	"context"
	"errors"
	"testing"
)

// A connection fails only if no member serves. A refusal of one member is counted by itself.
func TestAClientTriesEachMember(t *testing.T) {
	for name, test := range map[string]struct {
		errs map[string]error
		want Handshakes
	}{
		"the first serves": {nil, Handshakes{Made: 1}},
		"one is down":      {map[string]error{"a": errors.New("connection refused")}, Handshakes{Made: 1, Missed: 1}},
		"one refuses":      {map[string]error{"a": errors.New("remote error: tls: internal error")}, Handshakes{Made: 1, Missed: 1, Refused: 1}},
		"all are down":     {map[string]error{"a": errors.New("down"), "b": errors.New("down")}, Handshakes{Made: 1, Failed: 1, Missed: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Handshaker{connect: func(_ context.Context, member string) error { return test.errs[member] }}
			h.once(t.Context(), []string{"a", "b"})
			got := h.count
			if (got.Why == nil) != (got.Missed == 0) {
				t.Errorf("of %d attempts that failed, the errors are %v", got.Missed, got.Why)
			}
			got.Why, got.Gap = nil, 0
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
