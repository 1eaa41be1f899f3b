// Package storetest is what every backup store must do, as one suite of tests that each kind of store runs on the real
// thing. It knows stores by their interface alone; what it cannot see through that, a Subject reports.
package storetest
