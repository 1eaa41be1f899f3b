// Package cli owns what the main functions of druid and the agent share: how signals end a process, logging, progress
// on a terminal, and the version.
//
// It never decides anything about etcd or Kubernetes. It links neither a controller framework nor an etcd client, so
// that the agent stays small.
package cli
