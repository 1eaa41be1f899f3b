// Package view describes EtcdClusters for people: one pure function of the EtcdCluster, its Leases, Pods, Nodes and
// Events. kubectl druid prints it. Its JSON form is what kubectl druid prints with -o json.
//
// It has no client and no clock. What was not read, or what nothing reports, is unknown: a nil pointer or an empty string,
// never zero. It must never link controller-runtime, an etcd client or a backup store.
package view
