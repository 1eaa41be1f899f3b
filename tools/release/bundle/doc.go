// Package bundle owns the bundle of druid for the Operator Lifecycle Manager (OLM), in the format registry+v1.
//
// The bundle is a pure function of the installation, the samples and the version of a release. Each object of the
// installation goes to one place, by its kind: into the ClusterServiceVersion, into a manifest of the bundle, or into a
// file that the user applies besides, because OLM refuses its kind in a bundle. An object without a place is an error.
//
// It must never have a permission or a setting of its own: what the bundle installs is what install.yaml installs.
package bundle
