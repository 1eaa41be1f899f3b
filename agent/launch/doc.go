// Package launch owns the conversation between the supervisor that runs as process 1 of the etcd container and the
// agent next to it: the messages, how they travel over the unix socket with the volume's lock, and the agent's half, Server.
// The supervisor's half is package supervise.
//
// It holds no policy: what etcd is started with, and whether, is the Decider's. Its invariant: no one looks at or changes
// the volume but while this Pod's launch holds the volume's lock, so a Decider is asked only with that lock in hand.
//
// It must stay small, because launch lives as long as its Pod: it imports the standard library and golang.org/x/sys alone.
package launch
