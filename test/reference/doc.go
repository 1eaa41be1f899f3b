// Package reference renders the reference pages from what users read: commands and flags, the fields of the API, Events,
// conditions and messages. Its tests compare the pages in docs/reference with the code, and write them with -update.
//
// Only tests are here. It never decides what a text says: each text is changed where it is defined.
package reference
