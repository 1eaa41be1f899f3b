package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
)

// sector is what a database's size is a multiple of; etcd itself reports by it whether a checksum follows.
const sector = 512

// checksum verifies what etcd appends to a database that it sends: the sha256 of all before.
type checksum struct {
	sum hash.Hash
	// held are the last bytes seen, which may turn out to be the checksum.
	held []byte
	// passed counts the bytes before them.
	passed int64
}

func newChecksum() *checksum { return &checksum{sum: sha256.New()} }

// pass takes the next bytes of the stream and returns what of them, and of those before, is surely database. Both
// results are valid until the next call: first what was held back until now, then a part of p.
func (c *checksum) pass(p []byte) (first, second []byte) {
	if len(p) >= sha256.Size {
		first, second = c.held, p[:len(p)-sha256.Size]
		c.held = append(make([]byte, 0, 2*sha256.Size), p[len(p)-sha256.Size:]...)
	} else {
		all := append(slices.Clip(c.held), p...)
		n := max(len(all)-sha256.Size, 0)
		first, c.held = all[:n], all[n:]
	}
	_, _ = c.sum.Write(first) // a hash never fails
	_, _ = c.sum.Write(second)
	c.passed += int64(len(first) + len(second))
	return first, second
}

// verify is called at the stream's end, and returns the sha256 of the database in hexadecimal.
func (c *checksum) verify() (string, error) {
	sum := c.sum.Sum(nil)
	switch {
	case len(c.held) < sha256.Size || c.passed == 0:
		return "", fmt.Errorf("it ends after %d bytes", c.passed+int64(len(c.held)))
	case c.passed%sector != 0:
		return "", fmt.Errorf("it ends after %d bytes, without etcd's checksum", c.passed+sha256.Size)
	case string(sum) != string(c.held):
		return "", fmt.Errorf("its sha256 is %x, etcd says %x", sum, c.held)
	}
	return hex.EncodeToString(sum), nil
}
