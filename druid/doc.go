// Package druid owns the controller. It watches EtcdClusters and their objects, takes the steps that package plan
// returns, and writes their status.
//
// It speaks only to Kubernetes. It never connects to etcd, never reads a volume or a backup store, and no step waits
// for another cluster. It writes nothing while a cluster is steady. It takes an irreversible step only after a second
// plan, made from live reads, has the step too.
package druid
