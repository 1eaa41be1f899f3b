// Package supervise is process 1 of the etcd container. It holds the lock of the volume while etcd can run, runs etcd
// as its child exactly as the agent answers, and survives the exits of etcd and of the agent.
//
// It holds no policy and never reads etcd's data. Its invariant: etcd never runs while the lock of the volume is
// free, because the child inherits the descriptor of the lock.
//
// It must stay small, because one runs next to every etcd. It imports only the standard library and golang.org/x/sys,
// and is a binary of its own. A binary that links the agent's libraries (client-go, etcd's client and server) has 31
// MiB resident before it does anything, 25 MiB of them code and tables touched by package initialisation. This one
// has 4 MiB at first and 7 MiB after some starts and many probes (TestMemory measures it). The command `agent launch`
// therefore replaces itself with it (exec).
package supervise
