// Package dir is a backup store in a directory: one file per object, at the path that its key is.
//
// An object is written next to its place under a name that is no key, synced, linked into place, and the directories above
// it synced: it is whole or not there, also after a power cut. Nothing here follows a link out of the directory, makes the
// directory itself (what is not mounted must not be made), or touches files whose names are no keys.
package dir
