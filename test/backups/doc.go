// Package backups makes the backups of a real etcd for tests: fulls and deltas as the agents' own code writes them. It is
// imported by tests only.
package backups
