// Package control owns what druid's controllers share: which changes start a pass, which errors only delay one, and the
// name under which druid writes.
//
// It knows no controller. It reads and writes nothing.
package control
