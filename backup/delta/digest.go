package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
)

// Digest identifies the content of one revision: the first 16 bytes of a sha256 over its records in order, each as the
// length of its key (4 bytes, big endian), the key, the length of its value and the value. The zero Digest is "unknown".
type Digest [16]byte

// IsZero reports whether no one knows.
func (d Digest) IsZero() bool { return d == Digest{} }

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes hexadecimal; unknown is empty.
func (d Digest) MarshalText() ([]byte, error) {
	if d.IsZero() {
		return []byte{}, nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	*d = Digest{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("digest of %d digits, want %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Digester computes the Digest of one revision after the other. The zero value is ready.
type Digester struct {
	sum hash.Hash
	any bool
	buf [sha256.Size]byte // lengths on the way in, the sum on the way out
}

// Add takes the revision's next record.
func (d *Digester) Add(key, value []byte) {
	if d.sum == nil {
		d.sum = sha256.New()
	}
	d.any = true
	d.field(key)
	d.field(value)
}

func (d *Digester) field(b []byte) {
	binary.BigEndian.PutUint32(d.buf[:4], uint32(len(b)))
	d.sum.Write(d.buf[:4])
	d.sum.Write(b)
}

// Sum is the Digest of what was added since the last Reset, the zero Digest when that was nothing.
func (d *Digester) Sum() Digest {
	if !d.any {
		return Digest{}
	}
	return Digest(d.sum.Sum(d.buf[:0])[:len(Digest{})])
}

// Reset begins the next revision.
func (d *Digester) Reset() {
	if d.any {
		d.sum.Reset()
	}
	d.any = false
}
