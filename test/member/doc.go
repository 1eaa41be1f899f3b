// Package member owns a real etcd process of any minor that the repository supports, for tests of what reads or writes
// etcd's data. It is imported by tests alone.
package member
