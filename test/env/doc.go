// Package env owns the real servers that component tests run against. It is imported by tests alone, and holds nothing
// that imitates a server.
package env
