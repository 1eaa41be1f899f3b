// Package backup owns the command line for the backups in a store: list, show, plan, check, verify, restore, copy, gc, run,
// save and drop. It parses flags, calls the packages under backup, and prints. It decides nothing, and deletes nothing without
// --delete.
package backup
