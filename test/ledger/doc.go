// Package ledger keeps what tests did in many runs, and judges a run by it.
//
// A run of `make test` has a directory (RunVariable). Each step leaves in it what it saw: the stories their outcomes, the packages
// their `go test -json`, and a broken promise of safety a marker. The judge, test/ledger/judge, reads the directory at the end,
// appends the run to the ledger in the user's cache directory, prints what was repeated and what was not run, and is red by the
// rows of Policy.
//
// It runs no test, and it deletes nothing that a run has left.
package ledger
