package manifests

import (
	"github.com/etcd-druid/druid/agent/config"
)

// Options are what the install decides, alike for every cluster.
type Options struct {
	// AgentImage is the image, with its tag, that holds /agent. It is no part of a Pod's hash: another one
	// reaches a Pod when the Pod is made again, and makes none outdated.
	AgentImage string
	// Reloadable is what the agents read from their ConfigMap, but for what each cluster's own spec says there.
	Reloadable config.Reloadable
}
