// Package policy owns druid's policies: which steps a cluster needs, which labels its Pods have, how many of them may
// be evicted, and what its status says. Each policy is a table over small facts. The first match wins.
//
// Evaluate decides each policy once. Adopt, Steps and Status take its Evaluation. The list conditions names all conditions of the status.
// Each has a file condition_*.go with its table, its function, and its Events.
//
// It never reads a clock, an API server or a random number, and it never fails. What could not be observed is a fact
// called unknown, and requests nothing.
package policy
