// Package node is the inside of one node: a "machine" made of its own network,
// PID, mount, UTS, IPC and cgroup namespaces, with its own containerd, kubelet
// and kube-proxy. The supervisor makes the namespaces and the far end of the
// network cable; everything inside is set up here, from a plan that is only
// read. A node never reaches outside its own directory and namespaces.
//
// The node's disk is a directory that outlives it: powering it off is killing
// its process 1, and powering it on is running it again on the same directory.
package node
