// Package manifests owns the shape of every Kubernetes object that druid makes: pure functions from an EtcdCluster, a
// member's name and the install's Options to objects, held by golden files, and the install itself (install/).
//
// It never talks to Kubernetes, reads no clock and draws no random name: the same arguments give the same bytes, because
// the hash of an object decides whether a Pod is replaced and whether a Service is written again. It decides nothing about
// when an object is made, changed or deleted; that is druid's plan.
package manifests

//go:generate go test -run ^TestGoldenInstallIsTheRenderOfItsParts$ -update .
