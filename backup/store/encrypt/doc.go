// Package encrypt owns encryption by the client: a store around another one that encrypts objects before they are
// written and decrypts them when they are read. A reader of the inner store sees names, sizes and ranges.
// docs/reference/backup-format.md has the layout: each encrypted object is a file of age (age-encryption.org/v1),
// whose key is wrapped by a key of the user.
//
// An encrypted object has its key with the suffix ".age", so a listing distinguishes encrypted and plain objects, and
// a store may hold both. Records, which are JSON without data of etcd, stay plain, because they are read without a
// key.
//
// It never writes in plain text what must be encrypted, never calls an object damaged whose key is missing, and never
// returns a byte that was not authenticated. It holds one chunk of an object, 64 KiB, and keeps no key longer than
// one call.
package encrypt
