// Package supervisor is the inside of a rig: it runs in network, mount and PID
// namespaces of its own, and all that the rig runs descends from it. Killing
// it, by any means, ends the rig: the kernel kills what is in the namespaces.
//
// It owns the control plane, the cables between the nodes, and the faults. A
// fault is an order on the control socket; see verbs.go for all of them.
package supervisor
