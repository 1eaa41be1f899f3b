// Package chart owns the Helm charts: that of druid, charts/druid, and that of one EtcdCluster, charts/etcd-cluster.
//
// The chart of an EtcdCluster passes its spec through. Its values.schema.json is generated from the schemas in the
// CustomResourceDefinitions, so that Helm refuses a misspelt field before it reaches Kubernetes, which would drop it. The rules in
// CEL stay with the API server. The EtcdCluster is kept when its release is uninstalled, unless a value says otherwise: a later
// EtcdCluster with the same name would start empty.
//
// In the chart of druid, the CustomResourceDefinitions, the permissions, the admission policies, the rules and the
// dashboard are generated from the installation and from manifests/monitoring. So is the NetworkPolicy, from
// manifests/network-policy. The other templates are written by hand, because values change most of their lines: a
// generator would print the same template from a Go string. A test renders the chart with its default values and
// compares every object with the installation, so that no template differs from it.
//
// The CustomResourceDefinitions are templates and not in the folder crds/ of the chart, because Helm installs that folder
// once and never upgrades it. They have the annotation helm.sh/resource-policy: keep, because their deletion would delete
// every EtcdCluster.
//
// The charts have no hooks and look nothing up, so that tools that only render them get the same objects.
//
// The tests run the commands of docs/how-to/install/gitops.md against an API server too. Tools that apply EtcdClusters, rendered
// or not, read the conditions Reconciling and Stalled, which druid/policy decides; manifests/gitops has the health checks for Argo CD.
//
// A chart must never offer a value that druid does not support, nor render an object that the installation, or a sample, does not
// have unless a value asks for it.
package chart

//go:generate go test -run ^TestGolden -update .
