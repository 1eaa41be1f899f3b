// Package proof owns the answer to whether backups can be relied on: it restores what a store holds into a scratch
// directory, and compares the result with what etcd said of itself when it was saved.
//
// It calls nothing proven that was not restored to its end and compared equal, and nothing broken but what was read and found
// so: what could not be asked, read, written or compared is unknown. It never writes to the store, and outside of its
// scratch directory nowhere. No etcd runs, and its memory does not grow with the number of keys.
package proof
