package seal

import (
	"encoding/base64"
	"math"
	"strings"
)

const (
	// suffix of a sealed object's name.
	suffix = ".age"
	// record ends the names of objects that are never sealed.
	record = ".json"
)

// What age makes of an object: a header, a nonce, and chunks, each with its tag. An empty object has one empty chunk.
const (
	chunkSize = 64 << 10
	tagSize   = 16
	nonceSize = 16
)

// headerSize is that of every sealed object, because all that stands in it has a fixed length: only so a listing can report
// how large an object is inside.
var headerSize = int64(len("age-encryption.org/v1\n") +
	len("-> "+stanzaType+" "+version+" ") + idWidth + 1 + checkWidth + 1 + nameWidth + 1 +
	base64.RawStdEncoding.EncodedLen(saltSize+wrappedSize) + 2 + // its line is full, so that an empty one follows
	len("--- ") + base64.RawStdEncoding.EncodedLen(macSize) + 1)

// macSize of age's header.
const macSize = 32

// sealedName is the key under which an object stands that is sealed.
func sealedName(key string) string { return key + suffix }

// isPlain reports whether key is of an object that is never sealed.
func isPlain(key string) bool { return strings.HasSuffix(key, record) }

// plainSize is how much is in a sealed object of size bytes. Of one that was cut off it is less than was put.
func plainSize(size int64) int64 {
	payload := size - headerSize - nonceSize
	chunks := (payload + chunkSize + tagSize - 1) / (chunkSize + tagSize)
	return max(payload-chunks*tagSize, 0)
}

// sealedLength is how many bytes from a sealed object's beginning have the first n of what is in it; -1 for all.
func sealedLength(n int64) int64 {
	if n < 0 || n > math.MaxInt64/2 {
		return -1
	}
	chunks := (n + chunkSize - 1) / chunkSize
	return headerSize + nonceSize + chunks*(chunkSize+tagSize)
}

// bound is the part of a key that an object cannot be moved out of: its last three names, which are the history, the kind
// and the name of a backup. What stands before them may change: whole histories may be moved to another place.
func bound(key string) string {
	names := strings.Split(key, "/")
	return strings.Join(names[max(len(names)-3, 0):], "/")
}
