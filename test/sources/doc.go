// Package sources makes Go's test cache right for this repository, and lets it serve another clone.
//
// `go test` repeats no test whose package, variables and opened files are as they were when it passed. It compares the files by path, size
// and time, and it does not see what a child process reads. So a test that builds a program calls Reads, Copy makes a copy whose
// times come from the content of the files, and Path makes one PATH for all users. TemporaryDir removes what killed tests left.
//
// It must never change a file of the repository.
package sources
