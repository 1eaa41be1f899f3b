// Package states makes comparable what people see of an EtcdCluster: the output of kubectl druid, and the web page.
//
// A story compares the output with golden files. Steady replaces in a text what differs from run to run, and Data in JSON. This package must
// not know Kubernetes.
package states
