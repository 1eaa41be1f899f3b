// Package volume owns the names on a member's volume and the few files on it that are not etcd's: the lock, the marker of
// the last exit, and how a file is written so that it is there whole or not at all.
//
// launch links it, so it imports the standard library and golang.org/x/sys alone. It never touches etcd's own files.
package volume
