// Package seal owns encryption by the client: a store around another one that encrypts objects on their way there, and
// decrypts them on their way back. Who has it in hand sees the names, sizes and ranges of what was put. docs/reference/backup-format.md
// has the layout: each sealed object is a file of age (age-encryption.org/v1), whose key is wrapped by a key of the user's.
//
// A sealed object stands under its key and ".age", so that a listing reports sealed ones from plain ones, and a store may hold
// both. Records, which are JSON and hold nothing of what etcd holds, stay plain: they are read before anybody has a key.
//
// It never puts in plain what was to be sealed, never calls an object damaged whose key is missing, and never hands out a
// byte that was not authenticated. It holds one chunk of an object, 64 KiB, and no key longer than a call.
package seal
