// Package rulestest checks decision tables against all facts, and writes them into docs/reference/decisions.md.
//
// Only tests import it. It never decides what is safe: each table's test does.
package rulestest
