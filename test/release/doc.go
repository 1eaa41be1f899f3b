// Package release runs the tests of the program that builds a release, tools/release, which is a module of its own.
//
// It must never publish anything: the registry of the tests is in their own process.
package release
