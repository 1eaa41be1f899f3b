package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Restore says what the first start of a new cluster restores. It is a start option in the Pod, because an agent that
// cannot read it yet would form an empty cluster. It has no effect after the cluster has formed.
type Restore struct {
	// Store is the configuration of package backup/store. If it is absent, the store in the configuration file
	// applies, and the agent waits for that.
	Store json.RawMessage `json:"store,omitempty"`
	// Unresolved says, as a sentence, why it is unknown what to restore. The agent waits and reports it. All other
	// fields are empty.
	Unresolved string `json:"unresolved,omitempty"`
	// Prefix of the keys of the cluster whose backups are restored: <namespace>/<cluster>. It is empty if File is set.
	Prefix string `json:"prefix,omitempty"`
	// File is the key of an `etcdctl snapshot save` file in the store, instead of the backups of a cluster.
	File string `json:"file,omitempty"`
	// Lineage to restore. If it is empty, the fields below select it.
	Lineage string `json:"lineage,omitempty"`
	// At most one of these is set. None means the newest state.
	Revision int64      `json:"revision,omitempty"`
	Time     *time.Time `json:"time,omitempty"`
	Name     string     `json:"name,omitempty"`
}

// Encode returns the value of the flag --restore.
func (r Restore) Encode() (string, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode --restore: %w", err)
	}
	return string(raw), nil
}

// RestoreOrder reads the flag --restore. It returns nil if the flag is not set. Unknown fields are an error, because
// it is better to wait than to restore something else than requested.
func (c Config) RestoreOrder() (*Restore, error) {
	if c.Restore == "" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(c.Restore)))
	d.DisallowUnknownFields()
	var r Restore
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("--restore: %w", err)
	}
	targets := 0
	for _, set := range []bool{r.Revision != 0, r.Time != nil, r.Name != ""} {
		if set {
			targets++
		}
	}
	switch {
	case d.More():
		return nil, errors.New("--restore: more than one JSON value")
	case r.File != "" && (r.Prefix != "" || r.Lineage != "" || targets > 0):
		return nil, errors.New("--restore: a file cannot be combined with prefix, lineage, revision, time or name")
	case r.Prefix == "" && r.File == "" && r.Unresolved == "":
		return nil, errors.New("--restore has no prefix, want <namespace>/<cluster> of the cluster whose backups are restored")
	case r.Revision < 0:
		return nil, fmt.Errorf("--restore: revision is %d, want a number above 0", r.Revision)
	case targets > 1:
		return nil, errors.New("--restore: more than one of revision, time and name is set")
	}
	return &r, nil
}

// JoinOf is the value of the flag --join for the client endpoints of a running cluster.
func JoinOf(endpoints []string) string { return strings.Join(endpoints, ",") }

// JoinEndpoints returns the endpoints of the flag --join, or none if it is not set. An endpoint that cannot be dialed
// is an error: it is better to wait than to form a cluster that should join another one.
func (c Config) JoinEndpoints() ([]string, error) {
	if c.Join == "" {
		return nil, nil
	}
	scheme := "http"
	if c.JoinTLS != "" {
		scheme = "https"
	}
	endpoints := strings.Split(c.Join, ",")
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != scheme || u.Hostname() == "" || u.Port() == "" {
			return nil, fmt.Errorf("--join: endpoint %q is not a URL like %s://host:2379", endpoint, scheme)
		}
	}
	return endpoints, nil
}
