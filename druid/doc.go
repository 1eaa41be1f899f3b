// Package druid owns the controller: it watches EtcdClusters with what belongs to them, takes the steps that package plan
// names, and writes their status.
//
// It speaks Kubernetes alone: it never dials etcd, never reads a volume or a backup store, and no step of it waits for
// another cluster. It writes nothing while a cluster is steady. What it cannot take back it does only after it planned the
// same from live reads.
package druid
