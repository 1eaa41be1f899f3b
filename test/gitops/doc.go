// Package gitops reads an object as tools for GitOps do: by kstatus, as Flux and Helm 4, and by the health check of this repository, as
// Argo CD. Only tests import it.
package gitops
