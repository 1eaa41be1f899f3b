// Package webui is the web page of kubectl druid ui: it serves views of EtcdClusters on the loopback address of the user's computer.
//
// It reads through a Source with the permissions of the user, and changes nothing: it answers GET and HEAD only. Package view decides
// what a cluster is, and what to do; this package only shows it. A page asks no other server for anything, and works without
// JavaScript. It must never link a client of Kubernetes, an etcd client or a backup store.
package webui
