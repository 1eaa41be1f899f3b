package config

import (
	"fmt"
	"net/url"
	"strings"
)

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
