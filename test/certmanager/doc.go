// Package certmanager runs the controllers of the real cert-manager against an API server of a test. It is imported by tests
// alone.
package certmanager
