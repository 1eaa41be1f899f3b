// Package manifests owns the shape of every Kubernetes object that druid creates: pure functions from an EtcdCluster,
// a member name and the Options of the installation to objects. Golden files freeze them. It also owns the
// installation itself (install/), and what users add to it with Kustomize: namespaced/ limits druid to some namespaces,
// network-policy/ restricts its connections. namespaced/ is a component, because it changes objects of the installation.
//
// It never talks to Kubernetes, reads no clock and draws no random name. The same arguments give the same bytes,
// because the hash of an object decides whether a Pod is replaced and whether a Service is written again. It does not
// decide when an object is created, changed or deleted: druid's plan does.
package manifests

//go:generate go test -run ^TestGoldenInstallIsTheRenderOfItsParts$ -update .
