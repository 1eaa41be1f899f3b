package plugin

import (
	"strings"
	"testing"

	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// The installation is the same for all situations. The exit code is 1 exactly if a check fails. testdata/check.txt has the situation serving, and
// a user who may not read Leases has a test of TestCheckOfARealAPIServer.
func TestCheckOfEachSituation(t *testing.T) {
	server := env.OwnAPIServer(t)
	newStage(t, server).installDruid()
	for _, one := range situations.All() {
		if one.Name == "serving" || one.Name == "leases-not-readable" {
			continue
		}
		t.Run(one.Name, func(t *testing.T) {
			s := newStage(t, server)
			s.put(onNode(one.Objects, ""))
			all, code := s.findingsOf("check", "demo")
			out, _, printed := s.run("check", "demo")
			want := 0
			if strings.Contains(out, " FAIL ") {
				want = 1
			}
			if code != want || printed != want {
				t.Errorf("exit codes %d and %d, want %d", code, printed, want)
			}
			golden.File(t, "testdata/check/"+one.Name+".txt", versionless(s.neutral(out), all["Kubernetes version"].Reason))
		})
	}
}
