// Package fleet plays the nodes, the volumes and the members of many EtcdClusters, so that one machine can show druid
// hundreds of them on a real kube-apiserver. It writes what kubelets, a provisioner and agents would write, the Leases by
// the agents' own Store, Renewer and Election; no etcd runs.
//
// It decides nothing that druid or an agent decides: its members never fail, never wait for a disk and are always of one
// mind. What it shows is what so many clusters cost druid and the API server, and nothing about etcd.
package fleet
