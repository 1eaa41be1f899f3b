// Package pki makes certificate authorities and certificates, and checks certificates against what etcd needs. It works on PEM in memory.
//
// It must never read or write files or Kubernetes objects, and never print a private key.
package pki
