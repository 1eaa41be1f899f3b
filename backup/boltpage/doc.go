// Package boltpage knows how bbolt lays out the pages of a database, which bbolt does not export. backup/snapshot
// looks up single keys in a stored database with it, and backup/boltcheck checks complete ones.
//
// It takes bytes and never opens or writes a file. The bytes may be damaged: what does not fit is not ok, and nothing
// panics.
package boltpage
