package druid

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/test/crash/points"
)

// performance is a scenario in a namespace of its own, in which a druid dies at the point, or none does.
type performance struct {
	*stage
	scenario scenario
	point    string
	founders []string
}

func (p *performance) second() { p.stage.second(p.founders, p.scenario) }

// performances of one scenario. What needs no druid of its own is done by one for all of them.
type performances []*performance

func (all performances) second() {
	for _, p := range all {
		p.second()
	}
}

// startProcess runs a druid for all of them.
func (all performances) startProcess() *process {
	namespaces := make([]string, len(all))
	for i, p := range all {
		namespaces[i] = p.namespace
	}
	return all[0].startProcess("", namespaces...)
}

func TestADruidThatDiesAtAnyPointIsCarriedOn(t *testing.T) {
	t.Parallel()
	for name, calls := range points.Scenarios(crash.Druid) {
		scenario, ok := crashScenarios[name]
		if !ok {
			t.Fatalf("there is no scenario called %s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undisturbed := &performance{stage: anotherStage(t), scenario: scenario}
			all := performances{undisturbed}
			for _, point := range calls {
				all = append(all, &performance{stage: anotherStage(t), scenario: scenario, point: point})
			}
			all.eve()
			for _, p := range all[1:] {
				p.startProcess(p.point, p.namespace).endsAtItsPoint(p.second)
			}
			all.startProcess()
			want := undisturbed.rest(all.second)
			for _, p := range all[1:] {
				p.within("come out as if druid had not died at "+p.point, all.second, func() error {
					if diff := cmp.Diff(want, p.portrait(p.founders)); diff != "" {
						want = undisturbed.portrait(undisturbed.founders) // on a loaded machine it may have rested before its end
						return errors.New("(-undisturbed +got)\n" + diff)
					}
					return nil
				})
			}
		})
	}
}

// eve brings the namespaces to the moment at which the druids start that are to die.
func (all performances) eve() {
	if scenario := all[0].scenario; scenario.replicas > 0 {
		druid := all.startProcess()
		for _, p := range all {
			p.joins = scenario.joins
			p.createCluster("demo", scenario.replicas)
		}
		for _, p := range all {
			if p.founders = p.members("demo", int(scenario.replicas)); scenario.formed {
				p.form("demo", p.founders)
			}
		}
		for _, p := range all {
			if scenario.formed {
				p.within("serve", all.second, p.served)
			}
			if scenario.prepare != nil {
				p.beat = all.second
				scenario.prepare(p.stage, p.founders)
				p.beat = nil
			}
		}
		druid.kill()
	}
	for _, p := range all {
		p.joins = p.scenario.joins
		p.scenario.change(p.stage, p.founders)
	}
}

// rest is what the scenario comes to: what stays unchanged for three seconds, in which the renewals go on.
func (p *performance) rest(second func()) (last string) {
	same := 0
	reached := func() error { return p.scenario.reached(p.stage, p.founders) }
	p.within("come to rest", func() {
		second()
		if reached() != nil {
			last, same = "", 0
			return
		}
		if now := p.portrait(p.founders); now != last {
			last, same = now, 0
		}
		same++
	}, func() error {
		if err := reached(); err != nil {
			return err
		}
		if same < 4 || !strings.Contains(last, "\nEtcdCluster demo") || strings.Contains(last, "no conditions") {
			return errors.New(last)
		}
		return nil
	})
	return last
}
