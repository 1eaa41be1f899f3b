// Package chart owns the Helm chart of druid, charts/druid.
//
// The CustomResourceDefinitions, the permissions, the admission policies, the rules and the dashboard are generated from the
// installation and from manifests/monitoring. The other templates are written by hand, because values change most of their
// lines: a generator would print the same template from a Go string. A test renders the chart with its default values and
// compares every object with the installation, so that no template differs from it.
//
// The CustomResourceDefinitions are templates and not in the folder crds/ of the chart, because Helm installs that folder
// once and never upgrades it. They have the annotation helm.sh/resource-policy: keep, because their deletion would delete
// every EtcdCluster. The chart has no hooks and looks nothing up, so that tools that only render it get the same objects.
//
// It must never offer a value that druid does not support, nor render an object that the installation does not have unless a
// value asks for it.
package chart

//go:generate go test -run ^TestGolden -update .
