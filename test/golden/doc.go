// Package golden compares what a test produced with a file of the repository, and writes the file again when the test is
// run with -update. A file may be one test's alone, or hold a named section per table, whose facts it enumerates and whose
// cells it renders.
//
// Only tests import it.
package golden
