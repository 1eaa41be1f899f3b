// Command quickstart informs druid's story on this machine: it brings up a Kubernetes of three nodes, installs druid, lets a
// cluster form, destroys the disk of one member and shows how it heals. Everything is left running for the reader to play
// with; --down ends it.
//
// It owns the telling. Whatever it does to the cluster is a kubectl command that it prints first, so that the reader could
// have typed it; it never helps a cluster along.
package main
