package leases

import (
	"encoding/json"
	"time"
)

// TLS is what the agent of a member reports about its certificates, by plane.
type TLS struct {
	Client, Peer TLSPlane
}

// TLSPlane is the state of the certificates for the connections of clients or of peers. It is zero without TLS.
type TLSPlane struct {
	// Trusted are the fingerprints of the first MaxTLSTrusted certificate authorities that the running etcd was started with,
	// separated by commas. It is empty before the first start.
	Trusted string `json:"trusted,omitempty"`
	// Running identifies all of these authorities, and Staged those that etcd gets when it is started again. Both are empty if
	// there are none, and an agent of an earlier release does not report them.
	Running string `json:"running,omitempty"`
	Staged  string `json:"staged,omitempty"`
	// Issuer is the fingerprint of the authority of the server certificate in effect, empty if there is none.
	Issuer string `json:"issuer,omitempty"`
	// NotAfter is the end of the server certificate in effect, zero if there is none.
	NotAfter time.Time `json:"notAfter,omitzero"`
	// Scheme is SchemePlain or SchemeSecure: how the running etcd listens to its peers. It is empty while that is not known, and for clients.
	Scheme string `json:"scheme,omitempty"`
	// ComparesNames says that the running etcd compares the names in the certificate of a peer with the address of the peer. It is false
	// for clients, before the first start, and in the Lease of an agent of an earlier release.
	ComparesNames bool `json:"comparesNames,omitempty"`
	// Problem is what is wrong with the certificates in the mounted Secrets, empty if nothing is.
	Problem string `json:"problem,omitempty"`
}

// The schemes of peer URLs.
const (
	SchemePlain  = "http"
	SchemeSecure = "https"
)

// MaxTLSTrusted bounds the fingerprints in a Lease, so that MaxMemberPatch holds. A user's bundle can have a hundred
// authorities.
const MaxTLSTrusted = 4

// tlsJSON is the annotation. Its keys never change their meaning.
type tlsJSON struct {
	Client *TLSPlane `json:"client,omitempty"`
	Peer   *TLSPlane `json:"peer,omitempty"`
}

// With returns t with the state of the plane called name: client or peer.
func (t TLS) With(name string, plane TLSPlane) TLS {
	plane.NotAfter = plane.NotAfter.UTC()
	switch name {
	case "client":
		t.Client = plane
	case "peer":
		t.Peer = plane
	}
	return t
}

// maxTLSProblem bounds the text about a plane, in bytes, so that MaxMemberPatch holds.
const maxTLSProblem = 200

// format returns the annotation, empty for a member without TLS.
func (t TLS) format() string {
	var j tlsJSON
	for _, plane := range []struct {
		state TLSPlane
		into  **TLSPlane
	}{{t.Client, &j.Client}, {t.Peer, &j.Peer}} {
		if plane.state != (TLSPlane{}) {
			plane.state.Problem = truncate(plane.state.Problem, maxTLSProblem)
			*plane.into = &plane.state
		}
	}
	raw, err := json.Marshal(j)
	if err != nil || j == (tlsJSON{}) {
		return "" // a year after 9999 in a certificate: the Lease keeps what it has
	}
	return string(raw)
}

// ParseTLS reads the annotation. It ignores an unreadable one, which only means that the state is unknown.
func ParseTLS(s string) TLS {
	var j tlsJSON
	if decodeJSON(s, &j) != nil {
		return TLS{}
	}
	var t TLS
	if j.Client != nil {
		t.Client = *j.Client
	}
	if j.Peer != nil {
		t.Peer = *j.Peer
	}
	return t
}
