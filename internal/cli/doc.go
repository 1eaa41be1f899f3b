// Package cli owns what the mains of druid and the agent share: how signals end a process, how it logs, and which
// version it is.
//
// It never decides anything about etcd or Kubernetes, and it links neither a Kubernetes controller framework nor an etcd
// client, so that the agent stays small.
package cli
