// Package launch owns the conversation between the supervisor, process 1 of the etcd container, and the agent: the
// messages, their transport over the unix socket together with the lock of the volume, and Server, the agent's half.
// Package supervise is the supervisor's half.
//
// It holds no policy: the Decider says whether and how etcd starts. Its invariant: the volume is read and changed
// only while launch of this Pod holds its lock, so the Decider is asked only with that lock.
//
// It must stay small, because launch lives as long as its Pod. It imports only the standard library and
// golang.org/x/sys.
package launch
