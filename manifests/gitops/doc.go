// Package gitops has what tools need that apply EtcdClusters: the health checks for Argo CD. Its tests run the commands of
// docs/how-to/install/gitops.md against an API server.
//
// It has no code: tools read the conditions Reconciling and Stalled, which druid/policy decides.
package gitops
