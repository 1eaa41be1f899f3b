// Package boltpage knows how bbolt lays out the pages of a database, which bbolt itself does not export: backup/snapshot looks at
// single keys of one that lies in a store, and backup/boltcheck checks whole ones by it.
//
// It takes bytes and never opens or writes a file. What it is given may be damaged: what does not fit is not ok, and nothing panics.
package boltpage
