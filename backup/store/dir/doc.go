// Package dir is a backup store in a directory: one file per object, at the path of its key.
//
// An object is written next to its place under a name that is not a key, synced, and linked into place. Then the
// directories above it are synced. So it is complete or absent, also after a power failure. The package never follows
// a link out of the directory, never creates the directory itself (an unmounted volume must not be replaced), and
// never touches files whose names are not keys.
package dir
