// Package open makes a store from its configuration. It is the one place that links every kind of store; what works on
// backups takes a store.Store and links none.
package open
