// Package monitoring owns what an on-call person gets: alerts and recording rules, a dashboard for Grafana, and how Prometheus
// finds druid and the members. All of it is made by pure functions and written next to them by go generate.
//
// It is no part of the install, because not every Kubernetes has the Prometheus Operator, and nothing of druid depends on it. It
// must never name a metric that no one exports, nor raise an alert that docs/reference/runbooks.md does not explain.
package monitoring

//go:generate go test -run ^TestGolden -update .
