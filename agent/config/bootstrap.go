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

// Restore says what a new cluster's first boot restores. It is a start option and stands in the Pod: an agent that could
// not read it yet would form an empty cluster. It means nothing once the cluster has formed.
type Restore struct {
	// Store is the configuration of package backup/store; absent, it is that of the configuration file's backup, without
	// which the agent must wait.
	Store json.RawMessage `json:"store,omitempty"`
	// Unresolved says, as a sentence, why it is not known what is to be restored: the agent waits and reports it, and all else is empty.
	Unresolved string `json:"unresolved,omitempty"`
	// Prefix of the keys of the cluster whose backups are restored: <namespace>/<cluster>. Empty of a File.
	Prefix string `json:"prefix,omitempty"`
	// File is the key of a file in the store that `etcdctl snapshot save` wrote, instead of a cluster's backups.
	File string `json:"file,omitempty"`
	// Lineage that is meant; empty: it is found by what is below.
	Lineage string `json:"lineage,omitempty"`
	// At most one of them is set; none means the newest state.
	Revision int64      `json:"revision,omitempty"`
	Time     *time.Time `json:"time,omitempty"`
	Name     string     `json:"name,omitempty"`
}

// Encode is the value of the flag --restore.
func (r Restore) Encode() (string, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode what is to be restored: %w", err)
	}
	return string(raw), nil
}

// RestoreOrder reads the flag --restore: nil when it is not set. What the agent does not know in it is an error, because to
// restore something else than was asked for is worse than to wait.
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
		return nil, errors.New("--restore: a file is one state of no one's backups, so prefix, lineage, revision, time and name go not with it")
	case r.Prefix == "" && r.File == "" && r.Unresolved == "":
		return nil, errors.New("--restore has no prefix, want <namespace>/<cluster> of the cluster whose backups are restored")
	case r.Revision < 0:
		return nil, fmt.Errorf("--restore: revision is %d, want one above 0", r.Revision)
	case targets > 1:
		return nil, errors.New("--restore: more than one of revision, time and name is set")
	}
	return &r, nil
}

// JoinOf is the value of the flag --join for the client endpoints of a running cluster.
func JoinOf(endpoints []string) string { return strings.Join(endpoints, ",") }

// JoinEndpoints reads the flag --join: none when it is not set. What cannot be dialled is an error, because to form a cluster
// where one was to be joined is worse than to wait.
func (c Config) JoinEndpoints() ([]string, error) {
	if c.Join == "" {
		return nil, nil
	}
	endpoints := strings.Split(c.Join, ",")
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" {
			return nil, fmt.Errorf("--join: endpoint %q is no URL like http://host:2379", endpoint)
		}
	}
	return endpoints, nil
}
