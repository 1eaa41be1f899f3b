// Package states makes comparable what people see of an EtcdCluster: the output of kubectl druid, and the web page.
//
// A story compares the output with golden files. Steady replaces in it what differs from run to run, and ReadWebPage finds the texts of the
// web page by role and name. This package must not know Kubernetes.
package states
