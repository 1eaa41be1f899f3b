package bootstrap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/membership"
)

func TestWhatSpeaksAgainstAClusterThatIsToBeJoined(t *testing.T) {
	tests := map[string]struct {
		change func(*sourceSight)
		want   Source
		words  string
	}{
		"nothing":                            {func(*sourceSight) {}, SourceFit, ""},
		"no one answers":                     {func(s *sourceSight) { s.listErr = errors.New("refused") }, SourceSilent, "refused"},
		"another cluster answers":            {func(s *sourceSight) { s.listErr = fmt.Errorf("x: %w", membership.ErrOtherCluster) }, SourceOther, "another cluster"},
		"one endpoint is of another cluster": {func(s *sourceSight) { s.stray = []string{"http://b:2379"} }, SourceOther, "http://b:2379"},
		"authentication is on":               {func(s *sourceSight) { s.readErr = rpctypes.ErrUserEmpty }, SourceUnfit, "authentication is on"},
		"no quorum reads":                    {func(s *sourceSight) { s.readErr = errors.New("deadline") }, SourceSilent, "deadline"},
		"peers speak TLS":                    {func(s *sourceSight) { s.view.Members[0].PeerURLs = []string{"https://a:2380"} }, SourceUnfit, "no TLS"},
		"clients speak TLS":                  {func(s *sourceSight) { s.view.Members[1].ClientURLs = []string{"https://b:2379"} }, SourceUnfit, "no TLS"},
		"it has a learner":                   {func(s *sourceSight) { s.view.Members[1].Learner = true }, SourceAiling, "member b (2): it is a learner"},
		"our own learner is none of its": {func(s *sourceSight) {
			s.view.Members = append(s.view.Members, membership.Member{ID: 9, PeerURLs: []string{"http://us:2380"}, Learner: true})
		}, SourceFit, ""},
		"a member never started":                      {func(s *sourceSight) { s.view.Members[1].Name = "" }, SourceAiling, "never started"},
		"a member does not answer":                    {func(s *sourceSight) { s.statusErrs[2] = errors.New("no route") }, SourceAiling, "no route"},
		"a member runs an older minor":                {status(2, func(s *membership.Status) { s.Version = "3.5.31" }), SourceUnfit, "the minors must be the same"},
		"a member runs a newer minor":                 {status(2, func(s *membership.Status) { s.Version = "3.7.0" }), SourceUnfit, "the minors must be the same"},
		"a member runs a patch with bugs":             {status(1, func(s *membership.Status) { s.Version = "3.6.11" }), SourceUnfit, "3.6.12 at least"},
		"a member runs a vendor's patch":              {status(1, func(s *membership.Status) { s.Version = "3.6.12-0" }), SourceFit, ""},
		"a member's version cannot be read":           {status(1, func(s *membership.Status) { s.Version = "3.6.x" }), SourceUnfit, "want 3.minor.patch"},
		"a member knows no leader":                    {status(1, func(s *membership.Status) { s.Leader = 0 }), SourceAiling, "no leader"},
		"an alarm stands":                             {status(1, func(s *membership.Status) { s.Errors = []string{"alarm:NOSPACE"} }), SourceAiling, "NOSPACE"},
		"the database is too large for ours":          {status(1, func(s *membership.Status) { s.DBSize = 95 << 20 }), SourceUnfit, "quota of 100 MiB"},
		"what a person must repair is reported first": {both(status(1, func(s *membership.Status) { s.Leader = 0 }), status(2, func(s *membership.Status) { s.Version = "3.5.31" })), SourceUnfit, "member b"},
		"of two that ail the first is reported":       {both(status(1, func(s *membership.Status) { s.Leader = 0 }), status(2, func(s *membership.Status) { s.Leader = 0 })), SourceAiling, "member a"},
		"what is unfit is not hidden by an ache":      {both(status(1, func(s *membership.Status) { s.Version = "3.5.31" }), status(2, func(s *membership.Status) { s.Leader = 0 })), SourceUnfit, "member a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fine := membership.Status{Leader: 1, Version: "3.6.12", DBSize: 1 << 20}
			s := sourceSight{
				view: membership.View{Members: []membership.Member{
					{ID: 1, Name: "a", PeerURLs: []string{"http://a:2380"}, ClientURLs: []string{"http://a:2379"}},
					{ID: 2, Name: "b", PeerURLs: []string{"http://b:2380"}, ClientURLs: []string{"http://b:2379"}},
				}},
				statuses: map[uint64]membership.Status{1: fine, 2: fine}, statusErrs: map[uint64]error{},
			}
			test.change(&s)
			cfg := config.Config{EtcdVersion: "3.6.16", QuotaBackendBytes: 100 << 20}
			got, words := sourceOf(&cfg, &s, "http://us:2380")
			if got != test.want || !strings.Contains(words, test.words) || (test.words == "") != (words == "") {
				t.Errorf("%d, %q; want %d, %q", got, words, test.want, test.words)
			}
		})
	}
}

func status(id uint64, change func(*membership.Status)) func(*sourceSight) {
	return func(s *sourceSight) {
		status := s.statuses[id]
		change(&status)
		s.statuses[id] = status
	}
}

func both(a, b func(*sourceSight)) func(*sourceSight) {
	return func(s *sourceSight) { a(s); b(s) }
}
