// Package archive owns what is done with a store's backups as a whole: reading each object to see whether it is what its
// name says, copying a cluster's backups to another store, and deleting what retention lets go.
//
// It never calls an object broken that it could not read, never replaces one, never touches what it does not know, and
// deletes nothing but what chain's retention says of a listing made for that.
package archive
