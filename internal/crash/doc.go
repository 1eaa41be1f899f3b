// Package crash owns the points at which a test ends druid or an agent: without cleanup, between any two calls that
// change something outside of the process. The successor finds what a power failure would leave.
//
// Its invariant: a point does nothing unless the environment names it when the process starts, and only the
// environment can name one. It never changes what a program does otherwise. test/crash/points finds in the code which
// calls need points.
package crash
