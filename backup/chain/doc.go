// Package chain owns what the objects of a backup are called and how they hang together: the names of full snapshots and
// deltas, the record of a lineage's bootstrap, the catalog that one listing gives, the plan that leads to a state, and what
// retention keeps.
//
// Everything but Read, ReadBirth and WriteBirth is pure. It never opens an object other than a lineage's record, never
// orders by a clock what a revision can order, never takes a gap for nothing, and deletes nothing: it says what may go.
package chain
