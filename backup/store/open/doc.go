// Package open makes a store from its configuration. Only this package links every kind of store: the others take a
// store.Store.
package open
