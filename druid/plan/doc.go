// Package plan owns druid's policies: which steps a cluster needs, which labels its Pods bear, how many of them may be
// evicted, and what its status says. Each is a table over small facts, first match wins.
//
// It never reads a clock, an API server or a random number, and it never fails: what could not be observed is a fact like
// any other, called unknown, and orders nothing.
package plan
