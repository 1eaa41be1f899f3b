// Package harness lets a test talk about an EtcdCluster on a real Kubernetes in the words of a user: apply it, wait for
// it, write to it, break it, and ask etcd, the Leases and the status whether they agree.
//
// It observes and it breaks things; it never repairs what druid or an agent should repair, it never sleeps in place of a
// check, and an answer that could not be had is an error, not a no.
package harness
