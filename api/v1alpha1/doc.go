// Package v1alpha1 owns the types of the API group etcd.druid.dev and the names of their conditions and reasons. It
// holds no logic and imports nothing but apimachinery and Kubernetes' own API types.
//
// +kubebuilder:object:generate=true
// +groupName=etcd.druid.dev
package v1alpha1

//go:generate go tool -modfile=../../tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../tools/go.mod controller-gen crd paths=. output:crd:artifacts:config=../../manifests/install
