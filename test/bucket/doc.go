// Package bucket runs a real S3 server for tests, versitygw, and a proxy before it that breaks what the server cannot be
// made to break: answers that get lost, bodies that end early, connections that hang. It is imported by tests only, and
// knows nothing of what is stored.
package bucket
