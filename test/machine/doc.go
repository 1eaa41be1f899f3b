// Package machine owns what tests take from the machine that they share with everybody else on it: TCP ports, directories for unix sockets,
// small disks, and namespaces with a network and a name server of their own. It reads what a process used. Tests of several packages run at
// once, so nothing here may be free when it is looked at and taken when it is used. It is imported by tests alone.
package machine
