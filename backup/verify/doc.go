// Package verify owns the checks of backups. Run restores what a store holds into a scratch directory, and compares the
// result with what etcd reported when it was saved. Check reads each object and compares it with its name. Copy copies
// the backups of a cluster to another store and compares each copy. Collect deletes what retention releases.
//
// Run calls a backup verified only after a complete restore that compared equal, and broken only what it read and
// found so. What could not be queried, read, written or compared is unknown. It never writes to the store, and writes
// only to its scratch directory. No etcd runs, and its memory does not grow with the number of keys.
//
// Check never calls an object broken that it could not read. Copy never replaces an object. Collect deletes only what the
// retention of package catalog names from a listing made for that, and never touches unknown objects.
package verify
