// Package datadir owns what is on the volume of a member: the state of etcd's data directory, the identity file, and
// the quarantined directories.
//
// Inspect only reads, with etcd's own WAL decoder and bbolt's own reader, and names the damage that it finds. What it
// could not find out is an error, never a state. The package deletes only quarantined data, and never moves data
// without a description of it.
//
// Layout of a volume (package volume has the names):
//
//	druid.lock                   flock of the process that may touch the volume
//	druid.json                   IdentityFile: whose data this is, written before etcd first starts on it
//	druid.exit                   how the last etcd ended
//	data/                        etcd's data directory, 0700
//	data.restored*/              a data directory while a restore builds it
//	data.quarantine-<seq>-<reason>/   quarantined data, with its identity file and druid.quarantine.json
package datadir
