// Package review owns what the owner of a token of Kubernetes may do. It sends the token to the Kubernetes API and to nothing else, and
// asks there, as the caller, what the caller may do. So the program that asks needs no permission.
//
// It must never store, log or forward a token.
package review
