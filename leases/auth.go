package leases

import (
	"context"
	"encoding/json"
	"fmt"
)

// annotationAuth is an AuthReport on the record. Only the leader's agent writes it, and UpdateRecord does not.
const annotationAuth = Prefix + "auth"

// AuthReport is what the leader's agent reports about authentication in etcd. The zero value is no report: authentication is
// off, and druid does not manage it.
type AuthReport struct {
	// Config identifies the users and roles of the spec, and Generation is that of the spec. An agent with an older generation
	// changes nothing.
	Config     string `json:"config,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Enabled: authentication is on.
	Enabled bool `json:"enabled"`
	// Users are the users of the spec that etcd has, Unknown the other ones.
	Users   int `json:"users,omitempty"`
	Unknown int `json:"unknown,omitempty"`
	// State of what the spec requires, and Message for users.
	State   AuthState `json:"state,omitempty"`
	Message string    `json:"message,omitempty"`
}

// AuthState says how far the leader's agent is.
type AuthState string

// The states. An unknown one counts as pending.
const (
	// AuthDone: authentication, users and roles are as the configuration requires.
	AuthDone AuthState = "Done"
	// AuthPending: the leader's agent is about to change something, or waits.
	AuthPending AuthState = "Pending"
	// AuthIncomplete: something is missing for a user, and you must act.
	AuthIncomplete AuthState = "Incomplete"
	// AuthDenied: authentication is on, and etcd does not admit the agents.
	AuthDenied AuthState = "Denied"
	// AuthUnmanaged: authentication is on without a configuration.
	AuthUnmanaged AuthState = "Unmanaged"
)

// maxAuthMessage bounds the message, in bytes.
const maxAuthMessage = 512

// Bounded returns the report as it is written.
func (r AuthReport) Bounded() AuthReport {
	r.Message = truncate(r.Message, maxAuthMessage)
	return r
}

// parseAuth reads the annotation. It ignores an unreadable one, which only means that the state is unknown: the leader's agent
// writes it again.
func parseAuth(s string) AuthReport {
	var r AuthReport
	if decodeJSON(s, &r) != nil {
		return AuthReport{}
	}
	return r
}

// ReportAuth writes a report if the record still is at version. Otherwise it changes nothing and returns ErrConflict. It returns
// the new version.
func (s *Store) ReportAuth(ctx context.Context, version Version, r AuthReport) (Version, error) {
	name := RecordName(s.cluster)
	annotations := annotationPatch{annotationAuth: nil}
	if r != (AuthReport{}) {
		raw, err := json.Marshal(r.Bounded())
		if err != nil {
			return "", fmt.Errorf("patch Lease %s: %w", name, err)
		}
		annotations[annotationAuth] = new(string(raw))
	}
	lease, err := s.annotate(ctx, name, version, annotations)
	if err != nil {
		return "", err
	}
	return Version(lease.ResourceVersion), nil
}
