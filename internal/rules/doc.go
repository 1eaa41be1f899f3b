// Package rules owns decision tables: how a row matches facts, which row wins, and how all facts are enumerated and a table is
// printed. A package that decides something keeps its facts, its rows and what a verdict means; see docs/reference/decisions.md.
//
// It never knows what a fact means. It imports nothing of druid.
package rules
