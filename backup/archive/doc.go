// Package archive owns the work on a complete store: it reads each object and checks it against its name, copies the
// backups of a cluster to another store, and deletes what retention releases.
//
// It never calls an object broken that it could not read, never replaces one, and never touches unknown objects. It
// deletes only what the retention of package catalog names from a listing made for that.
package archive
