// Package encrypt owns encryption by the client: a store around another one that encrypts objects before they are
// written and decrypts them when they are read. A reader of the inner store sees names, sizes and ranges.
// Each encrypted object is a file of age (age-encryption.org/v1) for one X25519 recipient, and `age -d` decrypts it.
// docs/reference/backup-format.md has the layout.
//
// An encrypted object has its key with the suffix ".age", so a listing distinguishes encrypted and plain objects, and
// a store may hold both. Records, which are JSON without data of etcd, stay plain, because they are read without a
// key.
//
// An object is not bound to its name. What is inside a backup names its lineage and revisions, by which its readers find
// an object that was renamed or swapped.
//
// It never writes in plain text what must be encrypted, never calls an object damaged whose key is missing, and never
// returns a byte that was not authenticated. It holds one chunk of an object, 64 KiB, and keeps no key longer than
// one call.
package encrypt
