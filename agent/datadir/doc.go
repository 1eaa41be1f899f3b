// Package datadir owns what is on a member's volume: what state etcd's data directory is in, the stamp that says whose it
// is, and the directories that were moved aside.
//
// Inspect only ever reads, by etcd's own WAL decoder and bbolt's own reader, and names the damage it finds; what it could
// not find out is an error, never a state. Nothing here deletes data that was not moved aside before, and nothing moves
// data without a description of what it is.
//
// Layout of a volume (names in package volume):
//
//	druid.lock                   flock of anyone who may touch the volume
//	druid.json                   Stamp: whose data this is, written before etcd first starts on it
//	druid.exit                   how the last etcd ended
//	data/                        etcd's data directory, 0700
//	data.restored*/              a data directory while it is made from a backup
//	data.aside-<seq>-<reason>/   what was moved aside, with its stamp and druid.aside.json in it
package datadir
