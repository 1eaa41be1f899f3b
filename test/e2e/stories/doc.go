// Package stories has the table of the end-to-end tests, and decides which of them a run performs, in which order, and how many at
// once.
//
// Table has a row for each. Choose picks by the ledger of former runs, by what changed and by the time that is left. Begin makes a
// test the story that its row describes: it waits for its slots, and writes its outcome when it ends.
//
// The package knows neither Kubernetes nor etcd.
package stories
