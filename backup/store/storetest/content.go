package storetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
)

// block is how often the offset comes back into the content, in bytes.
const block = 64 << 10

// Content streams size bytes that follow from the seed: a block of noise that is repeated, each time with its number at its
// beginning, so that no two places can be taken for each other. It costs no memory, however long it is.
func Content(seed string, size int64) io.Reader {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	c := &content{mix: h.Sum64(), size: size}
	noise := rand.New(rand.NewPCG(c.mix, block))
	for i := 0; i < block; i += 8 {
		binary.LittleEndian.PutUint64(c.block[i:], noise.Uint64())
	}
	return c
}

type content struct {
	mix      uint64
	at, size int64
	block    [block]byte
}

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.size-c.at)]
	for rest := p; len(rest) > 0; {
		binary.LittleEndian.PutUint64(c.block[:], c.mix^uint64(c.at/block))
		n := copy(rest, c.block[c.at%block:])
		rest = rest[n:]
		c.at += int64(n)
	}
	return len(p), nil
}

// Same compares two streams to their ends, and reports where they differ first. An error that only wraps io.EOF is no end.
func Same(got, want io.Reader) error {
	a, b := make([]byte, block), make([]byte, block)
	for at := int64(0); ; {
		n, ended, err := read(got, a)
		if err != nil {
			return fmt.Errorf("read byte %d: %w", at+int64(n), err)
		}
		m, shouldEnd, err := read(want, b)
		if err != nil {
			return fmt.Errorf("the wanted content: %w", err)
		}
		if !bytes.Equal(a[:n], b[:m]) {
			i := 0
			for i < min(n, m) && a[i] == b[i] {
				i++
			}
			return fmt.Errorf("the content differs from byte %d on, got %d bytes more and want %d", at+int64(i), n-i, m-i)
		}
		if ended || shouldEnd {
			return nil
		}
		at += int64(n)
	}
}

// read fills p as far as the reader goes; an error is the reader's own.
func read(r io.Reader, p []byte) (n int, ended bool, err error) {
	for n < len(p) {
		k, err := r.Read(p[n:])
		n += k
		if err == io.EOF {
			return n, n < len(p), nil // a full p may come with the end: it comes again
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}
