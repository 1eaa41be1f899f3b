// Package volume owns the names on the volume of a member and the few files that are not etcd's: the lock and the
// marker of the last exit. It writes files so that they appear complete or not at all.
//
// launch links it, so it imports only the standard library and golang.org/x/sys. It never touches etcd's files.
package volume
