package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// TestLostAuthorityForgottenUnstarted: a lost authority is forgotten only before the first start.
// Only while no etcd can have been started, a lost authority is forgotten.
func TestLostAuthorityForgottenUnstarted(t *testing.T) {
	now := time.Now()
	second := v1alpha1.TLSAuthority{Generation: 2, Fingerprint: "second", NotAfter: metav1.NewTime(now.Add(time.Hour))}
	for name, test := range map[string]struct {
		change func(*Desired, *Observed, *Certificates)
		begins bool
	}{
		"no etcd was started":         {func(*Desired, *Observed, *Certificates) {}, true},
		"the first start is claimed":  {func(_ *Desired, o *Observed, _ *Certificates) { o.Record.Executor = "pod" }, false},
		"the cluster has formed":      {func(_ *Desired, o *Observed, _ *Certificates) { o.RecordState = RecordFormed }, false},
		"the cluster is recovering":   {func(_ *Desired, o *Observed, _ *Certificates) { o.RecordState = RecordRecovering }, false},
		"there is no record":          {func(_ *Desired, o *Observed, _ *Certificates) { o.RecordState = RecordAbsent }, false},
		"the status has a cluster ID": {func(d *Desired, _ *Observed, _ *Certificates) { d.ClusterID = 9 }, false},
		"the record has a cluster ID": {func(_ *Desired, o *Observed, _ *Certificates) { o.Record.ClusterID = 9 }, false},
		"an earlier epoch has formed": {func(_ *Desired, o *Observed, _ *Certificates) { o.Record.FormedEpoch = 1 }, false},
		"a member started with one":   {func(_ *Desired, o *Observed, _ *Certificates) { o.Members[0].Reports.TLS.Peer.Trusted = "x" }, false},
		"a member has an ID":          {func(_ *Desired, o *Observed, _ *Certificates) { o.Members[0].Reports.ID = 7 }, false},
		"a Lease cannot be read":      {func(_ *Desired, o *Observed, _ *Certificates) { o.Members[0].Readable = false }, false},
		"the Secret of the members is there": {func(_ *Desired, _ *Observed, c *Certificates) {
			c.Issued[0].State, c.Issued[0].Trust = IssuedCurrent, TrustSame
		}, false},
		"and is not known to be lost":     {func(_ *Desired, _ *Observed, c *Certificates) { c.Issued[0].State = IssuedUnread }, false},
		"the authority is there":          {func(_ *Desired, _ *Observed, c *Certificates) { c.Signer = AuthorityPresent }, false},
		"the authority could not be read": {func(_ *Desired, _ *Observed, c *Certificates) { c.Signer = AuthorityUnread }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, o, c := rotating(now)
			o.RecordState, o.Record.Phase = RecordForming, leases.PhaseForming
			o.Members[0].Reports.TLS = leases.TLS{}
			c.Signer, c.Next = AuthorityLost, NextAuthority{Generation: 2}
			c.Issued[0].State, c.Issued[0].Trust = IssuedAbsent, TrustOther
			test.change(&d, &o, c)
			before := tlsStatus(Evaluate(d, o), nil, metav1.NewTime(now))
			if got := slices.Contains(stepsOf(Evaluate(d, o)), "CreateAuthority client"); got != test.begins && o.RecordState != RecordFormed {
				t.Errorf("another authority is made: %t", got)
			}
			c.Next.Authority = &second
			after := tlsStatus(Evaluate(d, o), before, metav1.NewTime(now)).Client
			if got := after.Authority == "second" && len(after.Trusted) == 1; got != test.begins {
				t.Errorf("another authority signs: %t; status %+v", got, after)
			}
		})
	}
}

// A lost authority is replaced in each phase, and a lost next one is withdrawn.
func TestALostAuthorityBlocksNoPhase(t *testing.T) {
	now := time.Now()
	authority := func(generation int32, name string) v1alpha1.TLSAuthority {
		return v1alpha1.TLSAuthority{Generation: generation, Fingerprint: name, NotAfter: metav1.NewTime(now.Add(time.Hour))}
	}
	a, b, c, e, f := authority(1, "a"), authority(2, "b"), authority(3, "c"), authority(4, "e"), authority(5, "f")
	report := &leases.TLSPlane{}
	for name, test := range map[string]struct {
		change func(*Certificates)
		want   []string
	}{
		"one authority": {func(x *Certificates) { x.Trusted, x.Signing, x.Signer = []v1alpha1.TLSAuthority{a}, "a", AuthorityLost }, []string{"a", "c"}},
		"right after the switch": {func(x *Certificates) {
			x.Trusted, x.Signing, x.Signer = []v1alpha1.TLSAuthority{a, b}, "b", AuthorityLost
		}, []string{"a", "b", "c"}},
		"the next one": {func(x *Certificates) {
			x.Trusted, x.Signing, x.Candidate = []v1alpha1.TLSAuthority{a, b}, "a", AuthorityLost
		}, []string{"a"}},
		"a full list, and its certificates are not issued": {func(x *Certificates) {
			x.Trusted, x.Signing, x.Signer = []v1alpha1.TLSAuthority{a, b, c, e}, "e", AuthorityLost
			x.Issued[0].State = IssuedOutdated
		}, []string{"a", "b", "c", "e"}},
		"a full list, and its certificates are in use": {func(x *Certificates) {
			x.Trusted, x.Signing, x.Signer = []v1alpha1.TLSAuthority{a, b, c, e}, "e", AuthorityLost
			report.Issuer = "e"
		}, []string{"e"}},
		"the old one after switch": {func(x *Certificates) { x.Trusted, x.Signing = []v1alpha1.TLSAuthority{a, b}, "b" }, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, o, x := rotating(now)
			x.Next = NextAuthority{Generation: 3, Authority: &c}
			report = &o.Members[0].Reports.TLS.Client
			test.change(x)
			if len(x.Trusted) == maxTrusted {
				x.Next = NextAuthority{Generation: 5, Authority: &f}
			}
			if steps := stepsOf(Evaluate(d, o)); slices.Contains(steps, "CreateAuthority client") {
				t.Errorf("the steps are %q", steps)
			}
			s := tlsStatus(Evaluate(d, o), nil, metav1.NewTime(now))
			var got []string
			for _, trusted := range s.Client.Trusted {
				got = append(got, trusted.Fingerprint)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("trusted are %q, want %q", got, test.want)
			}
			if full := len(got) == maxTrusted; full != strings.Contains(s.Client.Message, "Restore the Secret from a backup") {
				t.Errorf("the message is %q", s.Client.Message)
			}
		})
	}
}
