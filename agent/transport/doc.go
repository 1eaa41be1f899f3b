// Package transport owns every dial and every listener of the agent: the clients to etcd's gRPC and HTTP endpoints and
// the server of the agent's own HTTP. They all take one Transport, so that TLS is one value and not a second path.
//
// It never decides whom to dial and keeps no connection of its own.
package transport
