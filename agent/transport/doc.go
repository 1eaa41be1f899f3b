// Package transport owns every dial and every listener of the agent: the clients of etcd's gRPC and HTTP endpoints,
// and the agent's own HTTP server. They all take one Transport, so TLS is one value and not a second path.
//
// Clients keeps the connections to etcd members, so that an agent makes few TLS handshakes. The package never decides
// what to dial.
package transport
