// Package survivor owns the data directory that a recovery builds from the disk of one member: its database with its
// complete log applied, as the first voter of a new raft group.
//
// It only reads the data of the member. It applies the log with etcd's own code, and never starts an etcd. All entries
// of the log count, committed or not: the members that are lost can have acknowledged them to clients.
package survivor
