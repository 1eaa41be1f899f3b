// Package rules owns decision tables: how a row matches facts, which row wins, and how all facts are enumerated and a
// table is printed. A package with a policy keeps its facts, its rows and the meaning of a verdict. See
// docs/reference/decisions.md.
//
// It never knows what a fact means, and imports nothing of this repository.
package rules
