// Package certificates owns the certificates of a member: it checks what the Secrets of the cluster contain, and puts what is good where
// etcd and the agent read it.
//
// etcd reads its certificate and key at each handshake, and its certificate authorities only when it starts. So a
// renewed certificate needs no restart. The package remembers which authorities the running etcd was started with, and never replaces
// the certificate by one that they did not sign.
//
// What is bad is never put in place: the running member keeps what it has, and a member without certificates does not start. The package
// must never write to the Secrets, and never log a key.
package certificates
