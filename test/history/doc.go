// Package history saves what an etcd holds as the agents do, for tests that restore it: a full, and deltas of what followed.
// It must never be the only proof of what the agents write: their own tests are.
package history
