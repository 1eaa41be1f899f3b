package druid

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/etcd-druid/druid/agent/config"
)

func optionsOf(t *testing.T, args ...string) Options {
	t.Helper()
	o := DefaultOptions()
	set := pflag.NewFlagSet("druid", pflag.ContinueOnError)
	o.AddFlags(set)
	if err := set.Parse(append(args, "--agent-image=example.com/druid:1")); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFlagsDecideTheIntervalsOfTheAgents(t *testing.T) {
	if diff := cmp.Diff(optionsOf(t).reloadable(), config.DefaultReloadable()); diff != "" {
		t.Errorf("without flags the agents have other intervals than by default (-got +want)\n%s", diff)
	}
	o := optionsOf(t, "--agent-renew-interval=5s", "--agent-lease-duration=15s", "--superfluous-grace-period=20s")
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	want := config.DefaultReloadable()
	want.RenewInterval, want.LeaseDuration = config.Duration(5*time.Second), config.Duration(15*time.Second)
	want.SuperfluousGracePeriod = config.Duration(20 * time.Second)
	if diff := cmp.Diff(o.reloadable(), want); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
}

func TestIntervalsThatNoAgentWouldTakeAreRefusedAtTheStart(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"renewals that flood the API server": {"--agent-renew-interval=500ms", "--agent-renew-interval is 500ms, want 1s to 5m0s"},
		"renewals that say nothing":          {"--agent-renew-interval=1h", "--agent-renew-interval is 1h0m0s, want 1s to 5m0s"},
		"a Lease that two lost renewals end": {
			"--agent-lease-duration=30s", "--agent-lease-duration is 30s, want 45s to 1h0m0s: set it to three times --agent-renew-interval or more",
		},
		"a grace below a Lease's duration": {
			"--superfluous-grace-period=30s", "--superfluous-grace-period is 30s, want 45s to 24h0m0s: set it to --agent-lease-duration or more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := optionsOf(t, test.arg).Validate()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}
