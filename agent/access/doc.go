// Package access owns who may have an agent act: take a backup, or move the leadership away. A caller shows a certificate
// of the cluster whose common name is allowed, or a token of Kubernetes. The agent sends the token to the Kubernetes API
// and to nothing else, and asks there, as the caller, what the caller may do. So the agent itself needs no permission.
//
// It never stores, logs or forwards a token, and never acts itself.
package access
