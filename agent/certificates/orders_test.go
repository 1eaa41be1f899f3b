package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
	etcd "github.com/etcd-druid/druid/test/member"
)

// ring is a cluster of three real etcds with mutual TLS on both planes, and two authorities. The test puts certificates and authorities in
// place without an agent and without druid, so that no check and no table holds a step back.
type ring struct {
	*testing.T
	old, new pki.Pair
	dirs     []string
	members  []*etcd.Member
	// shown is the certificate of the test's own client, which trusts both.
	shown atomic.Pointer[tls.Certificate]
}

// startRing starts three members that trust the old authority and have its certificates.
func startRing(t *testing.T, minor string) *ring {
	t.Helper()
	r := &ring{T: t, old: newAuthority(t, "old"), new: newAuthority(t, "new")}
	r.start(minor)
	return r
}

func (r *ring) start(minor string) {
	r.Helper()
	r.dirs = []string{r.TempDir(), r.TempDir(), r.TempDir()}
	own := r.consumer(r.old, r.old, r.new)
	own.Certificates = nil
	own.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.shown.Load(), nil }
	r.shows(r.old)
	options := make([]etcd.Options, len(r.dirs))
	for i, dir := range r.dirs {
		r.trust(i, r.old)
		r.issue(i, r.old)
		cfg := config.Default()
		cfg.TLSDir, cfg.ClientTLS, cfg.PeerTLS = dir, config.TLSMutual, config.TLSMutual
		options[i] = etcd.Options{Args: Args(cfg), TLS: own}
	}
	r.members = etcd.StartEach(r, minor, "https", options...)
}

// shows lets the test's own client have a certificate of the authority.
func (r *ring) shows(authority pki.Pair) {
	r.Helper()
	r.shown.Store(&r.consumer(authority, authority).Certificates[0])
}

func bundle(authorities ...pki.Pair) []byte {
	var raw [][]byte
	for _, authority := range authorities {
		raw = append(raw, authority.Certificate)
	}
	return slices.Concat(raw...)
}

// trust writes the authorities that the etcd of member i trusts from its next start on.
func (r *ring) trust(i int, authorities ...pki.Pair) {
	r.Helper()
	for _, plane := range []string{PlaneClient, PlanePeer} {
		dir := filepath.Join(r.dirs[i], plane)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, fileTrust), bundle(authorities...), 0o600)); err != nil {
			r.Fatal(err)
		}
	}
}

// issue gives member i certificates of the authority, which its etcd uses at the next handshake. They come with those of chain.
func (r *ring) issue(i int, authority pki.Pair, chain ...pki.Pair) {
	r.Helper()
	for _, plane := range []string{PlaneClient, PlanePeer} {
		c := content{authorities: bundle(r.old, r.new), server: r.pair(authority, true), client: r.pair(authority, false)}
		c.server.Certificate = append(c.server.Certificate, bundle(chain...)...)
		c.client.Certificate = append(c.client.Certificate, bundle(chain...)...)
		if err := c.place(filepath.Join(r.dirs[i], plane)); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *ring) pair(authority pki.Pair, server bool) pki.Pair {
	r.Helper()
	issuer, err := pki.ParseAuthority(authority, time.Now())
	if err != nil {
		r.Fatal(err)
	}
	request := pki.Request{CommonName: "etcd", Server: server, Client: true, Lifetime: time.Hour}
	if server {
		request.IPs = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	pair, err := issuer.Issue(request, time.Now())
	if err != nil {
		r.Fatal(err)
	}
	return pair
}

// restart stops the etcds of members and starts them again.
func (r *ring) restart(members ...int) {
	r.Helper()
	for _, i := range members {
		r.members[i].Stop(r)
	}
	for _, i := range members {
		r.members[i].Restart(r)
	}
}

// consumer are the settings of a client with a certificate of an authority, which trusts others. It reads nothing again.
func (r *ring) consumer(issuer pki.Pair, trusted ...pki.Pair) *tls.Config {
	r.Helper()
	pair := r.pair(issuer, false)
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		r.Fatal(err)
	}
	authorities, err := pki.Bundle(bundle(trusted...))
	if err != nil {
		r.Fatal(err)
	}
	return &tls.Config{RootCAs: pki.Pool(authorities), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}

// connect makes a new connection to each member, and returns how many failed.
func (r *ring) connect(consumer *tls.Config) (failed int, why error) {
	r.Helper()
	for _, m := range r.members {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: consumer.Clone(), DisableKeepAlives: true}, Timeout: 5 * time.Second}
		request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, m.Endpoint+"/version", http.NoBody)
		if err != nil {
			r.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		if err != nil {
			failed, why = failed+1, err
		}
	}
	return failed, why
}

// serves waits until member i answers a linearizable read, for which it must reach a leader and a quorum.
func (r *ring) serves(i int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, time.Second)
		_, err := r.members[i].Client.Get(attempt, "key")
		end()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// allServe fails the test if a member is not in the quorum, or does not serve the client that follows its Secret.
func (r *ring) allServe(step string, consumer *tls.Config) {
	r.Helper()
	for i := range r.members {
		if err := r.serves(i, servesWithin); err != nil {
			r.Fatalf("%s: member %d does not serve: %v", step, i, err)
		}
	}
	if failed, why := r.connect(consumer); failed > 0 {
		r.Fatalf("%s: %d connections failed: %v", step, failed, why)
	}
}

const (
	// servesWithin is the time for a start, an election and a busy machine.
	servesWithin = time.Minute
	// lostFor is several elections without success.
	lostFor = 6 * time.Second
)

var all = []int{0, 1, 2}

// trustBoth, newLeaves and dropOld are the steps of the replacement, each with its restarts one at a time.
func (r *ring) trustBoth(consumer *tls.Config) {
	r.Helper()
	for _, i := range all {
		r.trust(i, r.old, r.new)
		r.restart(i)
		r.allServe("a member trusts both", consumer)
	}
}

func (r *ring) newLeaves() {
	r.Helper()
	for _, i := range all {
		r.issue(i, r.new)
	}
	r.shows(r.new)
}

func (r *ring) dropOld(consumer *tls.Config) {
	r.Helper()
	for _, i := range all {
		r.trust(i, r.new)
		r.restart(i)
		r.allServe("a member trusts the new one alone", consumer)
	}
}

// TestEarlyReplacementStepCutsOff: each step of a replacement before its time cuts something off. The steps of a
// replacement in the order of the table druid/policy.rotationRows: no connection of a client that follows its Secret
// fails. And each step before its time, which the named row holds back: real etcds then lose a member or a client.
// Connections that are open would go on, so a member that is to be lost starts again.
func TestEarlyReplacementStepCutsOff(t *testing.T) {
	for _, minor := range etcd.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			t.Run("in order", func(t *testing.T) {
				r := startRing(t, minor)
				first, both, next := r.consumer(r.old, r.old), r.consumer(r.old, r.old, r.new), r.consumer(r.new, r.old, r.new)
				r.allServe("at first", first)
				r.trustBoth(first)
				r.allServe("clients trust both", both)
				r.newLeaves()
				r.allServe("the new one signs", both)
				r.allServe("clients have new certificates", next)
				r.dropOld(next)
				r.allServe("at the end", r.consumer(r.new, r.new))
			})
			t.Run("trust-both: a member has a new certificate and another one does not trust it", func(t *testing.T) {
				r := startRing(t, minor)
				r.trust(0, r.old, r.new)
				r.issue(0, r.new)
				r.restart(0)
				r.isLost(0, func() { r.issue(0, r.old) })
			})
			t.Run("certificates-come: a member drops the old one and another one has a certificate of it", func(t *testing.T) {
				r := startRing(t, minor)
				r.trustBoth(r.consumer(r.old, r.old))
				r.issue(0, r.new)
				r.trust(0, r.new)
				r.restart(0)
				r.isLost(0, r.newLeaves)
			})
			t.Run("wait-for-clients: the new one signs and a client does not trust it", func(t *testing.T) {
				r := startRing(t, minor)
				r.trustBoth(r.consumer(r.old, r.old))
				r.newLeaves()
				r.isCutOff(r.consumer(r.old, r.old), r.consumer(r.old, r.old, r.new))
			})
			t.Run("wait-for-old-certificates: the old one is dropped and a client has a certificate of it", func(t *testing.T) {
				r := startRing(t, minor)
				r.trustBoth(r.consumer(r.old, r.old))
				r.newLeaves()
				next := r.consumer(r.new, r.old, r.new)
				r.dropOld(next)
				r.isCutOff(r.consumer(r.old, r.old, r.new), next)
			})
		})
	}
}

// isLost says that member i is not in the quorum any more, that the others are, and that the certificates are the reason: what repairs them
// brings it back without a restart.
func (r *ring) isLost(i int, repair func()) {
	r.Helper()
	if err := r.serves(i, lostFor); err == nil {
		r.Errorf("member %d serves", i)
	}
	for _, other := range all {
		if other != i {
			if err := r.serves(other, servesWithin); err != nil {
				r.Errorf("member %d does not serve either: %v", other, err)
			}
		}
	}
	repair()
	if err := r.serves(i, servesWithin); err != nil {
		r.Errorf("member %d does not come back: %v", i, err)
	}
}

// isCutOff says that no member serves the client that does not follow its Secret, and that each serves the one that does.
func (r *ring) isCutOff(late, follows *tls.Config) {
	r.Helper()
	if failed, _ := r.connect(late); failed != len(all) {
		r.Errorf("%d of %d members do not serve a client that reads its Secret too late, want all", failed, len(all))
	}
	r.allServe("a client that follows", follows)
}
