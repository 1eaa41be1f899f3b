// Package crash owns the points at which a test ends druid or an agent: without cleanup, between any two calls that
// change something outside of the process. What a successor then finds is what a power cut leaves behind.
//
// Its invariant: unless the environment names a point when the process starts, a point does nothing, and nothing but the
// environment can name one. It never changes what a program does otherwise. Which calls need points is found by
// test/crash/points, from the code.
package crash
