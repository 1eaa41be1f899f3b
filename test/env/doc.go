// Package env owns the real servers that component tests run against, and the programs of this repository that they
// start. It is imported by tests alone, and holds nothing that imitates a server.
package env
