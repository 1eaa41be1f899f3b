package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestAuthorityRotationOrdered: authorities are replaced in order for all facts.
func TestAuthorityRotationOrdered(t *testing.T) {
	checkTable(t, rotationRows, "rotation", "Replacement of a certificate authority: druid/policy.rotationRows", wrongOfRotation)
}

func wrongOfRotation(f rotationFacts, d rules.Decision[rotationVerdict]) string {
	v := d.Verdict
	switch {
	case f.trusted&(trustNone|trustOne) != 0 && f.room == rules.No:
		return rulestest.Impossible // there is room for a second one
	case v == rotationSwitch && (f.trusted != trustCandidate || f.runs != runningAll || f.secrets&(deliveryMembers|deliveryAll) == 0):
		return "an authority signs that a member does not trust"
	case v == rotationSwitch && f.candidate != AuthorityPresent:
		return "an authority is to sign that cannot"
	case v == rotationDrop && (f.trusted != trustOld || f.leaves != runningAll || f.secrets&(deliveryMembers|deliveryAll) == 0):
		return "an authority is dropped although a certificate of it is in use"
	case v&(rotationSwitch|rotationDrop) != 0 && f.urgent == rules.No && (f.held == rules.No || f.secrets != deliveryAll):
		return "a client is cut off that follows its Secret"
	case v == rotationWithdraw && (f.trusted != trustCandidate || f.candidate != AuthorityLost):
		return "an authority is withdrawn that can have signed"
	case v == rotationNext && f.trusted == trustCandidate:
		return "a second replacement begins before the first has switched"
	case v == rotationNext && f.room == rules.No:
		return "more authorities are trusted than a Lease has room for"
	case v == rotationBegin && (f.formed != startingNone || f.signer != AuthorityLost || f.secrets != deliveryNone || f.trusted != trustOne):
		return "an authority is forgotten that an etcd or a Secret can have"
	case v != rotationWait && f.trusted != trustNone && f.formed == startingFormed && f.signer == AuthorityUnread:
		return "a decision follows from an error"
	case v&(rotationKeep|rotationWait|rotationBegin) == 0 && f.formed != startingFormed:
		return "authorities change while the cluster forms"
	case v&(rotationKeep|rotationWait) != 0 && f.formed == startingNone && f.trusted == trustOne && f.signer == AuthorityLost && f.secrets == deliveryNone:
		return "a cluster without data waits for an authority that is lost"
	}
	return ""
}

// A model of one plane: three members, of which each has its own view of the Secret. Every order of its steps is tried.
const modelMembers = 3

// The authorities in the model, as bits.
const (
	oldCA = 1 << iota
	newCA
)

type modelMember struct {
	// seen is what the agent last read of the Secret: the trusted authorities, and the one that issued the certificate.
	seen, seenLeaf uint8
	// runs are the authorities that etcd was started with. leaf is the issuer of the certificate in effect. down: it restarts.
	runs, leaf uint8
	down       bool
}

type model struct {
	trusted, signs         uint8 // the status
	secret, secretLeaf     uint8 // the Secret of the members
	members                [modelMembers]modelMember
	requested, clientsHeld bool
	// client has what it last read of its Secret: the authorities that it trusts, and the issuer of its certificate.
	client, clientLeaf uint8
}

func (m model) facts() rotationFacts {
	f := rotationFacts{
		formed: startingFormed, trusted: trustOne, signer: AuthorityPresent, candidate: AuthorityPresent, due: rules.No,
		requested: rules.YesNoOf(m.requested), room: rules.Yes,
		secrets: deliveryNone, runs: runningAll, leaves: runningAll, held: rules.YesNoOf(m.clientsHeld), urgent: rules.No,
	}
	if m.trusted == oldCA|newCA {
		f.trusted = trustCandidate
		if m.signs == newCA {
			f.trusted = trustOld
		}
	}
	if m.secret == m.trusted && m.secretLeaf == m.signs {
		f.secrets = deliveryAll
	}
	for _, member := range m.members {
		if member.down {
			f.runs, f.leaves = runningUnknown, runningUnknown
			break
		}
		if member.runs != m.trusted {
			f.runs = runningOther
		}
		if member.leaf != m.signs {
			f.leaves = runningOther
		}
	}
	return f
}

// next are the states after any one step of druid, of an agent, of a kubelet, or of time.
func (m model) next(table *rules.Table[rotationFacts, rotationVerdict]) (all []model) {
	add := func(change func(*model)) {
		after := m
		change(&after)
		if after != m {
			all = append(all, after)
		}
	}
	add(func(n *model) { n.rotate(table.Decide(m.facts()).Verdict) })
	add(func(n *model) { n.secret, n.secretLeaf = n.trusted, n.signs })
	readsAgain := func(n *model) { n.client, n.clientLeaf = n.secret, n.secretLeaf }
	add(readsAgain)
	// A client that follows the docs has read its Secret again when its time is over.
	add(func(n *model) {
		if n.clientsHeld = n.secret == n.trusted && n.secretLeaf == n.signs; n.clientsHeld {
			readsAgain(n)
		}
	})
	down := slices.ContainsFunc(m.members[:], func(o modelMember) bool { return o.down })
	for i, member := range m.members {
		add(func(n *model) { n.members[i].seen, n.members[i].seenLeaf = n.secret, n.secretLeaf })
		// The agent stages what the running etcd trusts.
		add(func(n *model) {
			if !member.down && member.runs&member.seenLeaf != 0 {
				n.members[i].leaf = member.seenLeaf
			}
		})
		// The rolling update deletes one Pod, a fault ends any. The new Pod reads the Secret as it is then.
		add(func(n *model) {
			if !down {
				n.members[i].down = true
			}
		})
		add(func(n *model) {
			if member.down {
				n.members[i] = modelMember{seen: n.secret, seenLeaf: n.secretLeaf, runs: n.secret, leaf: n.secretLeaf}
			}
		})
	}
	return all
}

func (m *model) rotate(v rotationVerdict) {
	switch v {
	case rotationNext:
		m.trusted, m.clientsHeld, m.requested = oldCA|newCA, false, false
	case rotationSwitch:
		m.signs, m.clientsHeld = newCA, false
	case rotationDrop:
		m.trusted, m.clientsHeld = m.signs, false
	default:
	}
}

// wrong says which member or client would be cut off: a member that runs does not trust its certificate, or it does not trust that of the
// member.
func (m model) wrong() string {
	for i, a := range m.members {
		if !a.down && (a.runs&m.clientLeaf == 0 || m.client&a.leaf == 0) {
			return fmt.Sprintf("member %d does not serve a client that follows: %+v", i, m)
		}
		for j, b := range m.members {
			if !a.down && !b.down && b.runs&a.leaf == 0 {
				return fmt.Sprintf("member %d has a certificate that member %d does not trust: %+v", i, j, m)
			}
		}
	}
	return ""
}

// explore tries every order, and returns what went wrong and whether the replacement can end from each state.
func explore(table *rules.Table[rotationFacts, rotationVerdict]) (wrong string, states int, ended bool) {
	start := model{trusted: oldCA, signs: oldCA, secret: oldCA, secretLeaf: oldCA, requested: true, client: oldCA, clientLeaf: oldCA}
	for i := range start.members {
		start.members[i] = modelMember{seen: oldCA, seenLeaf: oldCA, runs: oldCA, leaf: oldCA}
	}
	seen, queue := map[model]bool{start: true}, []model{start}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		if wrong = m.wrong(); wrong != "" {
			return wrong, len(seen), ended
		}
		f := m.facts()
		ended = ended || m.trusted == newCA && f.runs == runningAll && f.leaves == runningAll && !m.requested
		for _, after := range m.next(table) {
			if !seen[after] {
				seen[after] = true
				queue = append(queue, after)
			}
		}
	}
	return "", len(seen), ended
}

// No order of the steps of druid, the agents, the kubelets and a client that follows the docs cuts a member or the
// client off. Without one of the rows that wait, one does. TestEarlyReplacementStepCutsOff in agent/certificates shows
// what real etcds do then.
func TestNoOrderOfStepsCutsAMemberOff(t *testing.T) {
	wrong, states, ended := explore(rotationRows)
	if wrong != "" || !ended {
		t.Errorf("after %d states: %s, ended %t", states, wrong, ended)
	}
	t.Logf("%d states", states)
	for _, row := range []string{"trust-both", ruleHold, "certificates-come", ruleHoldOld} {
		if wrong, _, _ := explore(rotationRows.Without(row)); wrong == "" {
			t.Errorf("without row %s nothing is cut off", row)
		}
	}
}

// rotating is a cluster of one member whose authority of clients is being replaced.
func rotating(now time.Time) (Desired, Observed, *Certificates) {
	d, o := issued(now)
	m := &o.Members[0]
	m.Liveness, m.Stable, m.Make = leases.Live, true, MakeCurrent
	m.Reports.TLS.Client.Trusted, m.Reports.TLS.Client.Issuer = "client-ca", "client-ca"
	m.Reports.TLS.Peer.Trusted, m.Reports.TLS.Peer.Issuer = "peer-ca", "peer-ca"
	o.Certificates[0].Issued = append(o.Certificates[0].Issued, Issued{Name: "c-connection", State: IssuedCurrent, Trust: TrustSame})
	return d, o, &o.Certificates[0]
}

// The whole replacement, with the status of each phase as the input of the next.
func TestTheStatusLeadsThroughAReplacement(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	d, o, c := rotating(now)
	s := tlsStatus(Evaluate(d, o), nil, metav1.NewTime(now))
	expect := func(phase v1alpha1.TLSPhase, signing string, trusted int, distributed bool) {
		t.Helper()
		s = tlsStatus(Evaluate(d, o), s, metav1.NewTime(now))
		if s.Client.Phase != phase || s.Client.Authority != signing || len(s.Client.Trusted) != trusted || (s.Client.DistributedAt != nil) != distributed {
			t.Fatalf("status is %+v, want phase %s", s.Client, phase)
		}
		if (s.Client.Message == "") != (phase == v1alpha1.TLSStable && signing != "client-ca" || phase == v1alpha1.TLSStable && c.Requested == rules.No) {
			t.Errorf("phase %s has the message %q", phase, s.Client.Message)
		}
		c.Trusted, c.Signing = s.Client.Trusted, s.Client.Authority
	}
	report := &o.Members[0].Reports.TLS.Client
	expect(v1alpha1.TLSStable, "client-ca", 1, false)
	c.Request, c.Requested, c.Next = "2026-11", rules.Yes, NextAuthority{Generation: 2}
	expect(v1alpha1.TLSStable, "client-ca", 1, false)
	if steps := stepsOf(Evaluate(d, o)); !slices.Equal(steps, []string{"CreateAuthority client"}) {
		t.Errorf("the steps are %q", steps)
	}
	c.Next.Authority = &v1alpha1.TLSAuthority{Generation: 2, Fingerprint: "next", NotAfter: metav1.NewTime(now.Add(2 * time.Hour))}
	expect(v1alpha1.TLSTrustingBoth, "client-ca", 2, false)
	c.Issued[0].Trust, c.Issued[1].Trust = TrustOther, TrustOther
	if steps := stepsOf(Evaluate(d, o)); !slices.Equal(steps, []string{"IssueCertificates c-client-tls", "IssueCertificates c-connection"}) {
		t.Errorf("the steps are %q", steps)
	}
	if s.Client.LastHandledRotateCA != "2026-11" || s.Peer.LastHandledRotateCA != "" {
		t.Errorf("the handled requests are %q and %q", s.Client.LastHandledRotateCA, s.Peer.LastHandledRotateCA)
	}
	c.Requested = rules.No
	expect(v1alpha1.TLSTrustingBoth, "client-ca", 2, false)
	c.Held, c.HeldFor = rules.No, 5*time.Minute
	c.Issued[0].Trust = TrustSame
	expect(v1alpha1.TLSTrustingBoth, "client-ca", 2, false) // a client does not have it yet
	c.Issued[1].Trust = TrustSame
	expect(v1alpha1.TLSTrustingBoth, "client-ca", 2, true) // the member runs with the old one
	if !c.Outruns(o.Members[0]) {
		t.Error("the member is not restarted")
	}
	report.Trusted = "client-ca,next"
	expect(v1alpha1.TLSWaitingForClients, "client-ca", 2, true)
	if s.Client.HeldFor == nil || s.Client.HeldFor.Duration != c.HeldFor {
		t.Errorf("of the wait for clients, %v are counted", s.Client.HeldFor)
	}
	c.Held = rules.Yes
	expect(v1alpha1.TLSIssuingCertificates, "next", 2, false)
	if s.Client.HeldFor != nil {
		t.Errorf("%v of the first wait count for the second", s.Client.HeldFor)
	}
	c.Held = rules.No
	c.Issued[0].State, c.Issued[1].State = IssuedOutdated, IssuedOutdated
	expect(v1alpha1.TLSIssuingCertificates, "next", 2, false)
	c.Issued[0].State, c.Issued[1].State = IssuedCurrent, IssuedCurrent
	expect(v1alpha1.TLSIssuingCertificates, "next", 2, true)
	report.Issuer = "next"
	expect(v1alpha1.TLSWaitingForOldCertificates, "next", 2, true)
	c.Held = rules.Yes
	expect(v1alpha1.TLSTrustingNew, "next", 1, false)
	o.Members[0].Stable = false
	expect(v1alpha1.TLSTrustingNew, "next", 1, false)
	o.Members[0].Stable, report.Trusted = true, "next"
	expect(v1alpha1.TLSStable, "next", 1, false)
	if c.Outruns(o.Members[0]) {
		t.Error("the member is restarted again")
	}
}

func stepsOf(e Evaluation) (all []string) {
	certificateSteps(e, func(s Step) { all = append(all, string(s.Kind)+" "+s.Object) })
	return all
}

// A user's own authority changes in three edits of a Secret. Each of them restarts the members when all have staged the same, and a
// certificate of the new authority counts when all trust it.
func TestUserAuthorityNeedsTrustOfAll(t *testing.T) {
	now := time.Now()
	d, o := issued(now)
	o.Certificates = o.Certificates[:1] // a user provides those of peers
	member := func(name, trusted, running, staged, issuer, problem string) Member {
		m := Member{Name: name, Listed: true, Lease: LeaseOurs, Readable: true, Stable: true, Liveness: leases.Live}
		m.Reports.Role = leases.RoleMember
		m.Reports.TLS = leases.TLS{}.With("peer", leases.TLSPlane{Trusted: trusted, Running: running, Staged: staged, Issuer: issuer, Problem: problem})
		return m
	}
	for name, test := range map[string]struct {
		members []Member
		outrun  []bool
		issuers []string
	}{
		"nothing changes": {[]Member{member("a", "old", "1", "1", "old", ""), member("b", "old", "1", "1", "old", "")},
			[]bool{false, false}, []string{"old"}},
		"one has staged both": {[]Member{member("a", "old", "1", "2", "old", ""), member("b", "old", "1", "1", "old", "")},
			[]bool{false, false}, []string{"old"}},
		"all have staged both": {[]Member{member("a", "old", "1", "2", "old", ""), member("b", "old", "1", "2", "old", "")},
			[]bool{true, true}, []string{"old"}},
		"one runs with both": {[]Member{member("a", "old,new", "2", "2", "old", ""), member("b", "old", "1", "2", "old", "")},
			[]bool{false, true}, []string{"old"}},
		"a member rejects what it got": {[]Member{member("a", "old,new", "2", "2", "old", "x"), member("b", "old", "1", "2", "old", "")},
			[]bool{false, false}, []string{"old"}},
		"all got another authority at once": {[]Member{member("a", "old", "1", "1", "old", "x"), member("b", "old", "1", "1", "old", "x")},
			[]bool{false, false}, []string{"old"}},
		"all run with both": {[]Member{member("a", "old,new", "2", "2", "old", ""), member("b", "old,new", "2", "2", "old", "")},
			[]bool{false, false}, []string{"new", "old"}},
		"one has the new certificate": {[]Member{member("a", "old,new", "2", "2", "new", ""), member("b", "old,new", "2", "2", "old", "")},
			[]bool{false, false}, []string{"new", "old"}},
		"all have staged the new one alone": {[]Member{member("a", "old,new", "2", "3", "new", ""), member("b", "old,new", "2", "3", "new", "")},
			[]bool{true, true}, []string{"new", "old"}},
		"one runs with the new one alone": {[]Member{member("a", "new", "3", "3", "new", ""), member("b", "old,new", "2", "3", "new", "")},
			[]bool{false, true}, []string{"new"}},
		"an agent of an earlier release": {[]Member{member("a", "old", "", "", "old", ""), member("b", "old", "1", "1", "old", "")},
			[]bool{false, false}, []string{"old"}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Members = test.members
			for i, m := range test.members {
				if got := OutrunsProvided(o, "peer", m, []string{"old", "new"}); got != test.outrun[i] {
					t.Errorf("%s is restarted: %t", m.Name, got)
				}
				if OutrunsProvided(o, "peer", m, []string{"other"}) {
					t.Errorf("%s is restarted although no new Pod starts with its certificate", m.Name)
				}
			}
			if got := issuersAfter(Evaluate(d, o), "peer", []string{"old"}); !slices.Equal(got, test.issuers) {
				t.Errorf("issuers are %q, want %q", got, test.issuers)
			}
			o.Members[0].Stable, o.Members[0].Reports.TLS = false, leases.TLS{}
			want := []string{"before", reportOf(o.Members[1], "peer").Issuer}
			if got := issuersAfter(Evaluate(d, o), "peer", []string{"before"}); !slices.Equal(got, want) {
				t.Errorf("issuers are %q while one member is not known, want %q", got, want)
			}
		})
	}
	if got := issuersAfter(Evaluate(d, o), "client", []string{"before"}); !slices.Equal(got, []string{"before"}) {
		t.Errorf("issuers of druid's plane are %q", got)
	}
}

// TestUrgentRotationSkipsMissingPod: what is urgent waits for no member without a Pod.
// While certificates end soon, a member without a Pod, and the Secret of a client that cannot be read, do not block the replacement.
func TestUrgentRotationSkipsMissingPod(t *testing.T) {
	now := time.Now()
	next := v1alpha1.TLSAuthority{Generation: 2, Fingerprint: "next", NotAfter: metav1.NewTime(now.Add(time.Hour))}
	const later = PodAbsent | PodUnscheduled | PodUnstarted | PodEnded
	for _, pod := range bits(anyPod) {
		for _, urgent := range []rules.YesNo{rules.Yes, rules.No} {
			d, o, c := rotating(now)
			c.Trusted, c.Urgent = append(c.Trusted, next), urgent
			o.Members[0].Reports.TLS.Client.Trusted = "client-ca,next"
			without := o.Members[0]
			without.Name, without.Liveness, without.Pod, without.Stable = "c-b", leases.Stale, pod, false
			without.Reports.TLS.Client.Trusted = "client-ca"
			o.Members = append(o.Members, without)
			passes := urgent == rules.Yes && pod&later != 0
			for _, phase := range []struct{ signing, passes, waits string }{{"client-ca", "next-signs", "trust-both"}, {"next", "old-dropped", "certificates-come"}} {
				c.Signing, o.Members[0].Reports.TLS.Client.Issuer = phase.signing, phase.signing
				want := phase.waits
				if passes {
					want = phase.passes
				}
				if got := Evaluate(d, o).rotations["client"].Rule; got != want {
					t.Errorf("with a Pod that is %s, urgent %s: rule %s, want %s", pod, urgent, got, want)
				}
			}
		}
	}
}

// TestUrgentRotationSkipsClientSecret: what is urgent waits for no Secret of a client.
func TestUrgentRotationSkipsClientSecret(t *testing.T) {
	now := time.Now()
	next := v1alpha1.TLSAuthority{Generation: 2, Fingerprint: "next", NotAfter: metav1.NewTime(now.Add(time.Hour))}
	for name, test := range map[string]struct {
		unread int
		urgent rules.YesNo
		want   string
	}{
		"the Secret of a client":             {1, rules.No, "secrets-unread"},
		"that of a client, and it is urgent": {1, rules.Yes, "next-signs"},
		"that of the members":                {0, rules.No, "secrets-unread"},
		"that of the members, urgently":      {0, rules.Yes, "secrets-unread"},
	} {
		t.Run(name, func(t *testing.T) {
			d, o, c := rotating(now)
			c.Trusted, c.Urgent = append(c.Trusted, next), test.urgent
			o.Members[0].Reports.TLS.Client.Trusted = "client-ca,next"
			c.Issued[test.unread].State, c.Issued[test.unread].Trust = IssuedUnread, TrustOther
			if got := Evaluate(d, o).rotations["client"].Rule; got != test.want {
				t.Errorf("rule %s, want %s", got, test.want)
			}
		})
	}
}
