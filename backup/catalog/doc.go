// Package catalog owns the names of the objects of a backup and their relations: full backups and delta backups, the
// record of a lineage, the catalog of one listing, the plan that leads to a state, and retention.
//
// Everything except Read, ReadBootstrap and WriteBootstrap is pure. The package opens no object other than the record
// of a lineage. It never orders by a clock what a revision can order, and never ignores a gap. It deletes nothing: it
// says what may be deleted.
package catalog
