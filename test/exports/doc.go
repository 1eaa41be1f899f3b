// Package exports holds the metrics that a package exports: to Prometheus' conventions, and to the list of docs/reference/metrics.md,
// which it writes and by which the alerts and the dashboard are checked.
//
// Only tests import it.
package exports
