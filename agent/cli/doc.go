// Package cli owns the agent's command line: install, launch, run, status, backup and version. It wires and formats.
// It decides nothing about etcd.
package cli
