// Package backup owns the command line for a store's backups: list, show, plan, verify, prove, restore, copy and gc. It
// parses, asks backup/chain, backup/archive, backup/proof and backup/restore, and prints; it decides nothing, and deletes
// nothing unless it is instructed to.
package backup
