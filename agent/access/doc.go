// Package access owns who may have an agent act: take a backup, or move the leadership away. A caller shows a certificate
// of the cluster whose common name is allowed, or a token of Kubernetes, which internal/review checks.
//
// It never stores, logs or forwards a token, and never acts itself.
package access
