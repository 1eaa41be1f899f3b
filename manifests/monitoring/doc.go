// Package monitoring owns alerts and recording rules, a dashboard for Grafana, and the scrape configuration. Pure
// functions build all of it, and go generate writes it next to them.
//
// It is not part of the installation, because not every Kubernetes has the Prometheus Operator, and nothing of druid
// depends on it. It must never name a metric that is not exported, nor an alert that the runbooks in docs/reference do
// not explain.
package monitoring

//go:generate go test -run ^TestGolden -update .
