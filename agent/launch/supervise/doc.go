// Package supervise is process 1 of the etcd container: it holds the volume's lock for as long as etcd may run, runs etcd
// as its child exactly as the agent answers, and outlives both etcd's exits and the agent's.
//
// It holds no policy and never looks into etcd's data. Its invariant: there is no moment at which etcd runs and the
// volume's lock is free, for the child inherits the lock's descriptor.
//
// It must stay small, because one runs next to every etcd: it imports the standard library and golang.org/x/sys alone,
// and it is a binary of its own. A binary that links the agent's libraries (client-go, etcd's client and server) has
// 31 MiB resident before it does anything, 25 MiB of them code and tables touched by package initialisation; this one
// has 4 MiB at first and 7 MiB after some starts and many probes (TestMemory measures it). The command `agent launch` therefore replaces itself with it (exec).
package supervise
